// SPDX-License-Identifier: Apache-2.0
#include "dtensor/interrupt.h"

#include <unistd.h>

#include <cstdint>
#include <ctime>
#include <iterator>

#include "dtensor/placement/error.h"

namespace dtensor {
namespace interrupt_internal {

std::atomic<int> signal{0};

void stop() { throw Error(interrupted_text()); }

static_assert(std::atomic<int64_t>::is_always_lock_free);

bool is_another(std::atomic<int64_t>& first) {
  // Signals within this time of the first count as one signal: timeout(1), for
  // example, signals its child and then the child's process group.
  constexpr int64_t kOneSignal = 250'000'000;  // nanoseconds
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);  // async-signal-safe
  const int64_t now = t.tv_sec * int64_t{1'000'000'000} + t.tv_nsec;
  int64_t before = 0;
  return !first.compare_exchange_strong(before, now) &&
         now - before > kOneSignal;
}

}  // namespace interrupt_internal

namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM};
std::atomic<int64_t> first_at{0};

void handle(int number) {
  if (interrupt_internal::is_another(first_at)) _exit(128 + number);
  int none = 0;
  interrupt_internal::signal.compare_exchange_strong(none, number);
}

}  // namespace

const char* interrupted_text() {
  return interrupted() == SIGINT ? "[run] interrupted by SIGINT"
                                 : "[run] interrupted by SIGTERM";
}

StopOnSignals::StopOnSignals() {
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler == SIG_IGN) continue;
    struct sigaction mine = {};
    mine.sa_handler = handle;
    mine.sa_flags = SA_RESTART;  // do not interrupt writes
    sigaction(kSignals[i], &mine, nullptr);
  }
}

StopOnSignals::~StopOnSignals() {
  for (size_t i = 0; i < std::size(kSignals); ++i)
    sigaction(kSignals[i], &before_[i], nullptr);
}

}  // namespace dtensor
