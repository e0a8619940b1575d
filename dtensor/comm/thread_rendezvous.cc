#include "dtensor/comm/thread_rendezvous.h"

#include <cstring>

namespace dtensor {

Slot& ThreadRendezvous::own(uint64_t sequence) {
  if (!group_.barrier.broken()) return group_.slot(place_, sequence);
  // Others may still read the slot. A broken group is never used again.
  if (!scratch_) scratch_ = std::make_unique<Slot>();
  return *scratch_;
}

void ThreadRendezvous::open(const Collective& c) {
  sequence_ = c.sequence;
  if (c.num_bytes > 0 && c.num_bytes <= Slot::kSmall)
    std::memcpy(own(c.sequence).small, c.bytes,
                static_cast<size_t>(c.num_bytes));
  if (!group_.barrier.broken()) {
    Slot& mine = group_.slot(place_, sequence_);
    mine.fingerprint = c.fingerprint;
    mine.collective = &c;
  }
  group_.come(place_, c.sequence);
  run_.meet(group_, place_);
  const int size = static_cast<int>(group_.ranks.size());
  for (int m = 1; m < size; ++m) {
    if (slot(m).fingerprint == slot(0).fingerprint) continue;
    // The data that the slots point to lives until every member has read it.
    close_after([&] {
      disagree(group_.ranks, c.sequence, static_cast<size_t>(m),
               statement_of(of(0)), statement_of(of(m)));
    });
  }
}

void ThreadRendezvous::gather(int64_t bytes, void* out) {
  if (bytes == 0) return;
  const bool small = bytes <= Slot::kSmall;
  const size_t n = static_cast<size_t>(bytes);
  for (size_t m = 0; m < group_.ranks.size(); ++m) {
    const int member = static_cast<int>(m);
    std::memcpy(static_cast<char*>(out) + m * n,
                small ? small_of(member) : of(member).bytes, n);
  }
  if (!small) close();
}

}  // namespace dtensor
