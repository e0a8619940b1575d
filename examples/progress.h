// A line that tells how far a loop is.
#pragma once
#include <chrono>
#include <cstdint>
#include <string_view>

namespace dtensor::examples {

// On standard error: a bar that is drawn again where that is a terminal, else
// a line at the first and last step and every few seconds.
class Progress {
 public:
  explicit Progress(int64_t steps);
  // After step `done` of `steps` (from 1), with what else is to be said.
  void show(int64_t done, std::string_view text);

 private:
  using Clock = std::chrono::steady_clock;
  int64_t steps_;
  bool terminal_;
  Clock::time_point start_, last_;
};

}  // namespace dtensor::examples
