// SPDX-License-Identifier: Apache-2.0
#include "dtensor/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace dtensor {

Progress::Progress(int64_t steps)
    : steps_(steps),
      terminal_(isatty(STDERR_FILENO)),
      start_(Clock::now()),
      last_(start_) {}

void Progress::show(int64_t done, std::string_view text) {
  const auto now = Clock::now();
  const bool edge = done == 1 || done == steps_;
  const auto pause =
      terminal_ ? std::chrono::milliseconds(100) : std::chrono::seconds(5);
  if (!edge && now - last_ < pause) return;
  last_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double left =
      seconds / static_cast<double>(done) * static_cast<double>(steps_ - done);
  std::string line = fmt::format("step {}/{}  {}", done, steps_, text);
  if (terminal_) {
    constexpr int64_t kWidth = 24;
    const auto filled = static_cast<size_t>(done * kWidth / steps_);
    // \x1b[K: clear the rest of the line.
    line =
        fmt::format("\r[{}{}] {}  {:.0f} s left\x1b[K{}",
                    std::string(filled, '#'), std::string(kWidth - filled, '.'),
                    line, left, done == steps_ ? "\n" : "");
  } else {
    line += fmt::format("  {:.0f} s\n", seconds);
  }
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace dtensor
