// SPDX-License-Identifier: Apache-2.0
// Fits straight lines, and lines with one bend, to measured times.
#pragma once
#include <span>

namespace dtensor::examples {

struct TimedBytes {
  double bytes, us;
};

// A model of a transfer's time: alpha_us + us_per_byte * bytes.
struct FittedLine {
  double alpha_us = 0, us_per_byte = 0;
};

// Returns the line with the least sum of |log(line / measured)|, among the
// lines through two of the points, the flat lines through one point, and the
// lines through 0 and one point. With this error, short times count as much as
// long ones, twice the measured time is as wrong as half of it, and outliers
// have little influence. alpha_us and us_per_byte are not negative. REQUIRES:
// the times are above 0.
FittedLine fit(std::span<const TimedBytes>);

// A model of a transfer's time with two rates: the time of `line`, plus
// `extra_us_per_byte` for each byte beyond `cached_bytes`.
struct FittedBend {
  FittedLine line;
  double cached_bytes = 0, extra_us_per_byte = 0;
};

// Returns the bent line with the least error over all points. To make a
// candidate, fit() fits a line to the first n points. The candidate follows
// that line, bends at point n, and goes through a later point; or it bends
// between the points n and n + 1, and goes through two later points. At least
// two points lie on each side of the bend. The result is straight unless a bend
// more than halves the error of the points beyond it.
FittedBend fit_bent(std::span<const TimedBytes> ascending);

}  // namespace dtensor::examples
