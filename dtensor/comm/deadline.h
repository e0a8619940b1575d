// SPDX-License-Identifier: Apache-2.0
// Deadlines of waits for other processes. ProcessJob::Wait (job.h) is for waits
// in a loop, EndsInTime for calls that block.
#pragma once
#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dtensor/placement/error.h"

namespace dtensor {

// How long a process waits for another one from which nothing comes.
struct Patience {
  std::chrono::milliseconds time{0};  // 0: no limit
  // The setting that errors tell the user to raise: "--timeout SECONDS".
  std::string_view setting;
};
// The patience until the timeout of a run is known: the environment's
// DTENSOR_JOIN_TIMEOUT, in seconds; by default two minutes. Throws Error if the
// variable is not a number from 0.001 to 1e6.
Patience join_patience();
// The patience for this RunOptions::timeout.
Patience run_patience(std::chrono::milliseconds timeout);

// Measures how long a thread has waited. The thread calls look() now and then.
// Counts at most kMost of the time between two calls, so that the time for
// which the process was stopped (SIGSTOP) hardly counts.
class TimeWaited {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kMost{300};
  explicit TimeWaited(Clock::time_point looked = Clock::now())
      : looked_(looked) {}
  Clock::duration look(Clock::time_point now = Clock::now()) {
    total_ += std::min<Clock::duration>(now - looked_, kMost);
    looked_ = now;
    return total_;
  }

 private:
  Clock::time_point looked_;
  Clock::duration total_{};
};

// Thrown by a process that gives up waiting for others, at the deadline or
// because a signal asks it to end. The others may not know of it, so the
// program prints the text in every process that throws this.
class NoAnswer final : public Error {
 public:
  using Error::Error;
};

// "process 1" or "processes 1,2"; "the other processes" if the list is empty.
std::string processes_to_string(const std::vector<int>&);
// Returns the text for the deadline of a wait for `whom` while the processes do
// `phase`, such as "begin a run".
std::string no_answer_text(std::string_view whom, std::string_view phase,
                           const Patience&);
// Returns the text for a signal that ends such a wait. REQUIRES: interrupted().
std::string interrupted_wait_text(std::string_view whom,
                                  std::string_view phase);

// Prints "PROGRAM: text", calls then(), and ends this process with `code`,
// whatever its other threads do. If several threads call it, the first one's
// text is printed.
[[noreturn]] void end_process(int code, const std::string& text,
                              const std::function<void()>& then = {}) noexcept;

// Limits a library's call that waits for other processes and cannot be
// interrupted. If the object still exists at the deadline, its thread ends this
// process with no_answer_text() and exit code 1. If the object still exists
// half a second after a signal that StopOnSignals (interrupt.h) has noticed,
// the thread ends the process with interrupted_wait_text() and code 128 + the
// signal's number; if `heeds_signals` is false, it ignores signals.
class EndsInTime {
 public:
  EndsInTime(std::string whom, std::string_view phase, const Patience&,
             bool heeds_signals = true);
  EndsInTime(const EndsInTime&) = delete;
  EndsInTime& operator=(const EndsInTime&) = delete;

 private:
  std::jthread clock_;
};

}  // namespace dtensor
