// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm/barrier.h"

#include <chrono>
#include <thread>

namespace dtensor {
namespace {

// How long to poll: for longer than the arrivals of ranks with the same work
// usually differ, but so briefly that the lost core time does not matter.
constexpr std::chrono::microseconds kSpin{100};

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void Barrier::break_up() {
  word_.fetch_or(kBroken, std::memory_order_acq_rel);
  word_.notify_all();
}

bool Barrier::spin(uint32_t mine, bool breakable) const {
  using Clock = std::chrono::steady_clock;
  const auto passed = [&] {
    for (int i = 0; i < 16; ++i) {
      const uint32_t word = word_.load(std::memory_order_acquire);
      if (word / kRound != mine || (breakable && (word & kBroken))) return true;
      pause();
    }
    return false;
  };
  // The others usually arrive so soon that reading the clock would take longer
  // than the wait.
  for (int i = 0; i < 4; ++i)
    if (passed()) return true;
  for (const auto start = Clock::now(); Clock::now() - start < kSpin;) {
    // The awaited thread may be queued for this very core.
    std::this_thread::yield();
    if (passed()) return true;
  }
  return false;
}

}  // namespace dtensor
