// SPDX-License-Identifier: Apache-2.0
// Fits straight lines, and lines with one bend, to measured times.
#pragma once
#include <span>

namespace dtensor::examples {

struct TimedBytes {
  double bytes, us;
};

// The time of a transfer is alpha_us + us_per_byte * bytes.
struct FittedLine {
  double alpha_us = 0, us_per_byte = 0;
};

// Returns the line with the least sum of |log(line / measured)|, among the
// lines through two of the points, the flat lines through one point, and the
// lines through 0 and one point. With this error short times count as much as
// long ones, twice the time counts as much as half of it, and outliers have
// little influence. Neither number is negative. REQUIRES: times above 0.
FittedLine fit(std::span<const TimedBytes>);

// The time is that of the line, plus `extra_us_per_byte` for each byte beyond
// `cached_bytes`.
struct FittedBend {
  FittedLine line;
  double cached_bytes = 0, extra_us_per_byte = 0;
};

// Returns the bent line with the least error over all points. The candidates
// follow fit() of the points up to one of them; they bend there and go through
// a later point, or bend before the next point and go through two later points.
// The result has no bend unless that more than halves the error of the points
// beyond the bend, and at least two points are there.
FittedBend fit_bent(std::span<const TimedBytes> ascending);

}  // namespace dtensor::examples
