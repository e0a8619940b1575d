// A straight line through measured times.
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

}  // namespace dtensor::examples
