// SPDX-License-Identifier: Apache-2.0
// Turns SIGINT and SIGTERM into an Error on every rank. Operators and
// collectives check for a signal before they begin, and code that waits for
// other ranks checks from time to time.
#pragma once
#include <signal.h>

#include <atomic>
#include <cstdint>

namespace dtensor {

namespace interrupt_internal {
extern std::atomic<int> signal;
[[noreturn]] void stop();
// Called by signal handlers. Returns whether the first signal came more than
// 0.25 s ago. The first call finds 0 in `first`, stores its time there, and
// returns false.
bool is_another(std::atomic<int64_t>& first);
}  // namespace interrupt_internal

// The first signal that arrived while a StopOnSignals existed: SIGINT (2) or
// SIGTERM (15); 0 if none has. It is never reset: a program that was told to
// stop starts nothing new.
inline int interrupted() {
  return interrupt_internal::signal.load(std::memory_order_relaxed);
}
// Returns "[run] interrupted by SIGINT" or "... SIGTERM". REQUIRES:
// interrupted().
const char* interrupted_text();
// Throws Error with that text if a signal has arrived.
inline void check_interrupted() {
  if (interrupted()) [[unlikely]]
    interrupt_internal::stop();
}

// While an object exists, the first SIGINT or SIGTERM sets interrupted(), and a
// second one ends the process at once with exit code 128 + the signal's number.
// Signals within 0.25 s of the first count as one, since some senders deliver a
// signal twice. A signal that the process already ignored stays ignored.
// Objects may nest, but only one thread at a time may make or destroy them.
class StopOnSignals {
 public:
  StopOnSignals();
  ~StopOnSignals();
  StopOnSignals(const StopOnSignals&) = delete;
  StopOnSignals& operator=(const StopOnSignals&) = delete;

 private:
  struct sigaction before_[2];
};

}  // namespace dtensor
