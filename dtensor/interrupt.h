// SIGINT and SIGTERM as an Error on every rank. Whatever may go on for long
// looks here: operators and collectives before they begin, and what waits for
// other ranks now and then.
#pragma once
#include <signal.h>

#include <atomic>

namespace dtensor {

namespace interrupt_internal {
extern std::atomic<int> signal;
[[noreturn]] void stop();
}  // namespace interrupt_internal

// The signal that has asked for the end while there was a StopOnSignals: 2 or
// 15; 0 for none. It stays: a program that was told to stop starts nothing.
inline int interrupted() {
  return interrupt_internal::signal.load(std::memory_order_relaxed);
}
// "[run] interrupted by SIGINT", when one has.
const char* interrupted_text();
// Throws the Error of that text when one has.
inline void check_interrupted() {
  if (interrupted()) [[unlikely]]
    interrupt_internal::stop();
}

// While it lives, the first SIGINT or SIGTERM sets interrupted(), and a second
// one ends the process at once with exit code 128 + its number. Some senders
// deliver one signal twice in a row: that is one. A signal that was ignored
// stays ignored. One at a time, by one thread.
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
