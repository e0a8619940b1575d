// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm/deadline.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "dtensor/environment.h"
#include "dtensor/interrupt.h"

namespace dtensor {
namespace {

using namespace std::chrono_literals;

// How often EndsInTime checks a blocking call, and how long the call may go on
// after a signal.
constexpr auto kLook = 20ms, kAfterSignal = 500ms;

}  // namespace

Patience join_patience() {
  const auto text = variable("DTENSOR_JOIN_TIMEOUT");
  const auto seconds = number_in<double>(text.value_or("120"), 0.001, 1e6);
  DT_CHECK(seconds, "run",
           "DTENSOR_JOIN_TIMEOUT is '{}'; write seconds, from 0.001 to 1e6",
           *text);
  return {std::chrono::milliseconds(
              static_cast<int64_t>(std::ceil(*seconds * 1000))),
          "DTENSOR_JOIN_TIMEOUT=SECONDS"};
}

Patience run_patience(std::chrono::milliseconds timeout) {
  return {timeout, "--timeout SECONDS (RunOptions::timeout)"};
}

std::string processes_to_string(const std::vector<int>& all) {
  constexpr size_t kMost = 16;
  if (all.empty()) return "the other processes";
  return fmt::format(
      "process{} {}{}", all.size() == 1 ? "" : "es",
      fmt::join(all.begin(),
                all.begin() + std::min<std::ptrdiff_t>(std::ssize(all), kMost),
                ","),
      all.size() > kMost ? fmt::format(",... ({})", all.size()) : "");
}

std::string no_answer_text(std::string_view whom, std::string_view phase,
                           const Patience& patience) {
  return fmt::format(
      "[run] nothing came from {} for {} s, while the processes {}; find out "
      "why, or let the others wait longer with {}",
      whom, std::chrono::duration<double>(patience.time).count(), phase,
      patience.setting);
}

std::string interrupted_wait_text(std::string_view whom,
                                  std::string_view phase) {
  return fmt::format("{} while this process waited for {}, as the processes {}",
                     interrupted_text(), whom, phase);
}

void end_process(int code, const std::string& text,
                 const std::function<void()>& then) noexcept {
  static std::atomic_flag ends;
  if (!ends.test_and_set()) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s: %s\n", program_invocation_short_name,
                 text.c_str());
    if (then) then();
    std::_Exit(code);
  }
  for (;;) std::this_thread::sleep_for(1s);  // the first caller exits
}

EndsInTime::EndsInTime(std::string whom, std::string_view phase,
                       const Patience& patience, bool heeds_signals)
    : clock_([whom = std::move(whom), phase = std::string(phase), patience,
              heeds_signals](const std::stop_token& stop) {
        std::mutex mutex;
        std::condition_variable_any stopped;
        TimeWaited waited, asked;
        for (;;) {
          std::unique_lock lock(mutex);
          if (stopped.wait_for(lock, stop, kLook,
                               [&] { return stop.stop_requested(); }))
            return;
          if (!heeds_signals || !interrupted())
            asked = TimeWaited();
          else if (asked.look() > kAfterSignal)
            end_process(128 + interrupted(),
                        interrupted_wait_text(whom, phase));
          if (patience.time > 0ms && waited.look() > patience.time)
            end_process(1, no_answer_text(whom, phase, patience));
        }
      }) {}

}  // namespace dtensor
