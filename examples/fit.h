// Lines through measured times, straight or bent once.
#pragma once
#include <span>

namespace dtensor::examples {

struct TimedBytes {
  double bytes, us;
};

// Takes alpha_us + us_per_byte * bytes.
struct FittedLine {
  double alpha_us = 0, us_per_byte = 0;
};

// Of the lines through two of the points, and those through one that are flat
// or begin at 0, the one with the least sum of |log(line / measured)|: a short
// time counts as much as a long one, twice as much as half, and a point far off
// pulls little. Neither number is negative. REQUIRES: times above 0.
FittedLine fit(std::span<const TimedBytes>);

// Takes the line's time, and `extra_us_per_byte` for each byte beyond
// `cached_bytes`.
struct FittedBend {
  FittedLine line;
  double cached_bytes = 0, extra_us_per_byte = 0;
};

// Of the lines through the points up to one of them, as above, which bend there
// and go through a later point, or bend before the next one and go through two,
// the one with the least error of all points; not bent unless that makes the
// error of the points beyond less than half, and there are two of them at
// least.
FittedBend fit_bent(std::span<const TimedBytes> ascending);

}  // namespace dtensor::examples
