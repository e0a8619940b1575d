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

}  // namespace interrupt_internal

namespace {

// timeout(1) signals its child, and then the group that the child is in.
constexpr int64_t kOneSignal = 250'000'000;  // nanoseconds

constexpr int kSignals[] = {SIGINT, SIGTERM};
std::atomic<int64_t> first_at{0};
static_assert(std::atomic<int64_t>::is_always_lock_free);

int64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);  // async-signal-safe
  return t.tv_sec * int64_t{1'000'000'000} + t.tv_nsec;
}

void handle(int number) {
  int none = 0;
  if (interrupt_internal::signal.compare_exchange_strong(none, number)) {
    first_at.store(now());
    return;
  }
  // (0: another thread is handling the first signal.)
  const int64_t first = first_at.load();
  if (first > 0 && now() - first > kOneSignal) _exit(128 + number);
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
