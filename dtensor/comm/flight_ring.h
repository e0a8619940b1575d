// SPDX-License-Identifier: Apache-2.0
// Records the last collectives of one thread, the ring's own thread. Errors
// name the newest one, and the flight recorder writes them all to a file when
// something goes wrong. The ring is always on, so an entry costs as little as
// possible.
//
// A precise clock would cost more than everything else in an entry (23 ns for
// rdtsc on the virtual machine where this was written). Therefore begin times
// come from the kernel's coarse clock, which advances every few milliseconds;
// comparing them between ranks shows which rank was late. The end time is
// recorded only where that costs nothing compared with the work, or when the
// collective ends with an exception.
//
// The thread writes while others read, so every word of a slot is atomic. A
// slot's number is 0 while the slot is rewritten, so that a reader can tell
// whether it saw one whole entry.
#pragma once
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dtensor/comm/agreement.h"

namespace dtensor {

// One entry of a snapshot. Times are those of std::chrono::steady_clock, in ns.
struct FlightEntry {
  uint64_t number = 0;       // counts the thread's collectives, from 1
  uint32_t group = 0;        // an index into Snapshot::groups
  uint64_t sequence = 0;     // counts the group's collectives, from 1
  uint64_t fingerprint = 0;  // fingerprint_of()
  StepKind kind = StepKind::kBarrier;
  ReduceOp reduce_op;  // of the first tensor, if the kind reduces
  DType dtype;         // of the first tensor, if there is one
  uint32_t tensors;
  int64_t bytes;   // of this member's data: buffers, sources or gathered bytes
  std::string op;  // the operator's first FlightRing::kOpLetters letters
  int64_t begun;
  bool agreed, ended, threw;  // `ended` also if it threw
  int64_t over;               // end time; 0: not measured
};

class FlightRing {
 public:
  static constexpr size_t kEntries = 512;
  static constexpr size_t kOpLetters = 63;
  // A collective of at least this size takes so long that reading the clock
  // does not matter.
  static constexpr int64_t kTimedBytes = 64 << 10;

  FlightRing() = default;
  FlightRing(const FlightRing&) = delete;
  FlightRing& operator=(const FlightRing&) = delete;

  // Adds a group, given by its ranks in the run, and returns its number. The
  // ring's own thread calls this, at least once before the first begun().
  uint32_t add_group(std::vector<int64_t> world_ranks);
  std::vector<int64_t> group(uint32_t) const;  // the ranks of that group
  // The ring's own thread calls these when a collective begins, when all
  // members have agreed, when the collective has ended, and, instead of
  // ended(), when it has thrown.
  void begun(const Collective&);
  void agreed() { now_->state.store(kAgreed, std::memory_order_release); }
  void ended() {
    const int64_t at = bytes_ < kTimedBytes ? 0 : now();
    now_->state.store(time_and(at, kAgreed | kEnded),
                      std::memory_order_release);
  }
  void threw() noexcept;

  // Returns the recorded entries, oldest first. Any thread may call it at any
  // time.
  struct Snapshot {
    std::vector<std::vector<int64_t>> groups;
    std::vector<FlightEntry> entries;
    int64_t now;  // when the entries were read
  };
  Snapshot snapshot() const;
  // Returns the last entry; its number is 0 if there is none. Any thread may
  // call it at any time.
  FlightEntry newest() const;

  // Reads the coarse clock, in ns.
  static int64_t now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
  }

 private:
  static constexpr uint64_t kAgreed = 1, kEnded = 2, kThrew = 4, kStates = 8;
  static uint64_t time_and(int64_t ns, uint64_t states) {
    return static_cast<uint64_t>(ns) * kStates + states;
  }
  using Word = std::atomic<uint64_t>;
  struct alignas(64) Slot {
    Word number, begun, state, sequence, fingerprint, bytes;
    Word what;   // kind, reduce op and dtype, one byte each
    Word where;  // low half: group; high half: number of tensors
    Word op[(kOpLetters + 1) / 8];
  };
  // False if the slot is empty or was rewritten meanwhile.
  static bool read(const Slot&, FlightEntry&);

  mutable std::mutex mutex_;  // guards groups_ and the creation of slots_
  std::vector<std::vector<int64_t>> groups_;
  std::unique_ptr<Slot[]> slots_;  // made with the first group
  Word number_ = 0;                // of the newest complete entry
  // Used by the ring's own thread alone: the slot and the bytes of its last
  // entry.
  Slot* now_ = nullptr;
  int64_t bytes_ = 0;
};

inline void FlightRing::begun(const Collective& c) {
  // A reader must see the number 0 before it sees any word of a new entry, so
  // every store is a release store; on x86 these are plain stores.
  const auto put = [](Word& word, uint64_t value) {
    word.store(value, std::memory_order_release);
  };
  const uint64_t number = number_.load(std::memory_order_relaxed) + 1;
  Slot& s = slots_[number % kEntries];
  now_ = &s;
  put(s.number, 0);
  uint64_t what = static_cast<uint64_t>(c.call->kind);
  const auto type = [&](ReduceOp op, DType dtype) {
    what |= static_cast<uint64_t>(op) << 8 | static_cast<uint64_t>(dtype) << 16;
  };
  int64_t bytes = std::max<int64_t>(0, c.num_bytes);
  if (!c.transfers.empty()) type(c.transfers[0].op, c.transfers[0].dtype);
  if (!c.buffers.empty()) type(c.buffers[0].op, c.buffers[0].dtype);
  for (const Transfer& t : c.transfers)
    bytes += t.schedule->held * size_of(t.dtype);
  for (const Buffer& b : c.buffers) bytes += b.n * size_of(b.dtype);
  bytes_ = bytes;
  put(s.begun, static_cast<uint64_t>(now()));
  put(s.state, 0);
  put(s.sequence, c.sequence);
  put(s.fingerprint, c.fingerprint);
  put(s.bytes, static_cast<uint64_t>(bytes));
  put(s.what, what);
  put(s.where, c.group | (c.transfers.size() + c.buffers.size()) << 32);
  const std::string_view op = c.call->op.substr(0, kOpLetters);
  size_t at = 0;
  for (; at + 8 <= op.size(); at += 8) {
    uint64_t letters;
    std::memcpy(&letters, op.data() + at, 8);
    put(s.op[at / 8], letters);
  }
  uint64_t rest = 0;  // the remaining letters, and the 0 that ends them
  for (size_t i = op.size(); i > at; --i)
    rest = rest << 8 | static_cast<unsigned char>(op[i - 1]);
  put(s.op[at / 8], rest);
  put(s.number, number);
  put(number_, number);
}

}  // namespace dtensor
