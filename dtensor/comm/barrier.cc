#include "dtensor/comm/barrier.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <ctime>
#include <thread>

namespace dtensor {
namespace {

// Longer than the difference between ranks that do the same work, but so short
// that the lost core time does not matter.
constexpr std::chrono::microseconds kSpin{100};

long futex(std::atomic<uint32_t>& word, int what, uint32_t value,
           const timespec* timeout) {
  static_assert(sizeof(word) == sizeof(uint32_t));
  return syscall(SYS_futex, &word, what | FUTEX_PRIVATE_FLAG, value, timeout,
                 nullptr, 0);
}

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
  wake();
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

bool Barrier::sleep(uint32_t word) {
  const timespec timeout{0, std::chrono::nanoseconds(kLate).count()};
  return futex(word_, FUTEX_WAIT, word, &timeout) == 0 || errno != ETIMEDOUT;
}

void Barrier::wake() { futex(word_, FUTEX_WAKE, INT_MAX, nullptr); }

}  // namespace dtensor
