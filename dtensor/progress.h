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
  // Call it after step `done` of `steps`, counted from 1. `text` is shown, too.
  void show(int64_t done, std::string_view text);

 private:
  using Clock = std::chrono::steady_clock;
  int64_t steps_;
  bool terminal_;
  Clock::time_point start_, last_;
};

}  // namespace dtensor
