// SPDX-License-Identifier: Apache-2.0
// A barrier for threads. It can be broken, so that no thread waits in vain.
//
//   Barrier barrier(4, /*spin=*/true);
//   // Each of the four threads:
//   parts[i] = part_of(i);
//   if (!barrier.wait(waited)) return;  // a member has failed
//   use(parts);
//
// Everything that the members wrote before they called wait() is visible to a
// member once its own wait() has returned true. The barrier outlives all calls:
// its owner joins the threads before it destroys the barrier.
//
// One 32-bit word holds the round, the number of arrivals, whether a member
// sleeps, and whether the barrier is broken. One compare-and-swap completes a
// round or finds it broken, so either all members pass or none. Thus a rank
// that unwinds after a failure never frees memory that another rank, which
// passed, still reads.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace dtensor {

// The total time for which others have waited for one thread, in nanoseconds.
// Overlapping waits count once.
struct Waited {
  int64_t total = 0, until = 0;
  void add(int64_t from, int64_t to) {
    total += std::max<int64_t>(0, to - std::max(from, until));
    until = std::max(until, to);
  }
};

class Barrier {
 public:
  // With `spin`, a waiting thread polls for a while before it sleeps; that pays
  // only while every thread has a core of its own.
  Barrier(int members, bool spin)
      : members_(static_cast<uint32_t>(members)), spin_(spin) {}
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;

  static constexpr int kMaxMembers = (1 << 14) - 1;

  // Waits for all members; returns false if the barrier is broken before they
  // have arrived. If others slept in a round, the member that completes it adds
  // the time since the first of them went to sleep to its own waited_for.
  bool wait(Waited& waited_for) { return arrive(true, waited_for); }
  // Like wait(), but ignores break_up(). For members that have passed wait()
  // together and so are certain to come.
  void wait_unbroken(Waited& waited_for) { arrive(false, waited_for); }

  // Makes wait() return false for the current round, unless it is complete, and
  // for all later rounds.
  void break_up();
  bool broken() const {
    return word_.load(std::memory_order_acquire) & kBroken;
  }

 private:
  static constexpr uint32_t kBroken = 1, kSleeper = 2, kMember = 4,
                            kRound = 1 << 16;

  bool arrive(bool breakable, Waited& waited_for) {
    uint32_t word = word_.load(std::memory_order_acquire);
    for (;;) {
      if (breakable && (word & kBroken)) return false;
      const uint32_t come = word % kRound / kMember + 1;
      if (come == members_) {
        const uint32_t next = (word / kRound + 1) * kRound + (word & kBroken);
        // Read before the swap: after it, others may already go to sleep in the
        // next round and store a new time.
        const int64_t since = asleep_since_.load(std::memory_order_relaxed);
        if (!swap(word, next)) continue;
        if (word & kSleeper) {
          waited_for.add(since, now());
          word_.notify_all();
        }
        return true;
      }
      if (swap(word, word + kMember)) {
        word += kMember;
        break;
      }
    }
    const uint32_t mine = word / kRound;
    auto over = [&] { return word / kRound != mine; };
    if (spin_ && spin(mine, breakable)) {
      word = word_.load(std::memory_order_acquire);
      return over();
    }
    for (;;) {
      word = word_.load(std::memory_order_acquire);
      if (over()) return true;
      if (breakable && (word & kBroken)) return false;
      if (!(word & kSleeper)) {
        asleep_since_.store(now(), std::memory_order_relaxed);
        if (!swap(word, word | kSleeper)) continue;
      }
      word_.wait(word | kSleeper, std::memory_order_acquire);
    }
  }
  bool swap(uint32_t& word, uint32_t next) {
    return word_.compare_exchange_weak(word, next, std::memory_order_acq_rel,
                                       std::memory_order_acquire);
  }
  // Polls for a while. True if the round has completed or was broken.
  bool spin(uint32_t mine, bool breakable) const;
  static int64_t now() {
    return std::chrono::steady_clock::now().time_since_epoch() /
           std::chrono::nanoseconds(1);
  }

  alignas(64) std::atomic<uint32_t> word_{0};
  std::atomic<int64_t> asleep_since_{0};  // of the round's first sleeper
  uint32_t members_;
  bool spin_;
};

}  // namespace dtensor
