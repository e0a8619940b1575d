// SPDX-License-Identifier: Apache-2.0
// Shows the progress of a loop.
#pragma once
#include <chrono>
#include <cstdint>
#include <string_view>

namespace dtensor {

// Writes to standard error. If that is a terminal, redraws a bar; if not,
// writes a line at the first and the last step and every few seconds.
class Progress {
 public:
  explicit Progress(int64_t steps);
  // Call it after each step. `done` is the number of steps that are done, and
  // `text` is shown beside it.
  void show(int64_t done, std::string_view text);

 private:
  using Clock = std::chrono::steady_clock;
  int64_t steps_;
  bool terminal_;
  Clock::time_point start_, last_;
};

}  // namespace dtensor
