// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm/flight_ring.h"

#include <algorithm>
#include <utility>

namespace dtensor {

uint32_t FlightRing::add_group(std::vector<int64_t> world_ranks) {
  std::lock_guard lock(mutex_);
  if (!slots_) slots_ = std::make_unique<Slot[]>(kEntries);
  groups_.push_back(std::move(world_ranks));
  return static_cast<uint32_t>(groups_.size() - 1);
}

std::vector<int64_t> FlightRing::group(uint32_t number) const {
  std::lock_guard lock(mutex_);
  return groups_[number];
}

void FlightRing::threw() noexcept {
  const uint64_t agreed = now_->state.load(std::memory_order_relaxed) & kAgreed;
  now_->state.store(time_and(now(), agreed | kEnded | kThrew),
                    std::memory_order_release);
}

bool FlightRing::read(const Slot& s, FlightEntry& e) {
  const auto get = [](const Word& word) {
    return word.load(std::memory_order_acquire);
  };
  e.number = get(s.number);
  if (e.number == 0) return false;
  e.begun = static_cast<int64_t>(get(s.begun));
  const uint64_t state = get(s.state);
  e.agreed = state & kAgreed;
  e.ended = state & kEnded;
  e.threw = state & kThrew;
  e.over = static_cast<int64_t>(state / kStates);
  e.sequence = get(s.sequence);
  e.fingerprint = get(s.fingerprint);
  e.bytes = static_cast<int64_t>(get(s.bytes));
  const uint64_t what = get(s.what), where = get(s.where);
  e.kind = static_cast<StepKind>(what & 0xff);
  e.reduce_op = static_cast<ReduceOp>(what >> 8 & 0xff);
  e.dtype = static_cast<DType>(what >> 16 & 0xff);
  e.group = static_cast<uint32_t>(where);
  e.tensors = static_cast<uint32_t>(where >> 32);
  e.op.clear();
  for (const Word& word : s.op) {
    char letters[8];
    const uint64_t w = get(word);
    std::memcpy(letters, &w, 8);
    const size_t n = strnlen(letters, 8);
    e.op.append(letters, n);
    if (n < 8) break;
  }
  return get(s.number) == e.number;
}

FlightEntry FlightRing::newest() const {
  for (FlightEntry e;;) {
    const uint64_t number = number_.load(std::memory_order_acquire);
    // The thread may have rewritten the slot meanwhile; then try again.
    if (number == 0 ||
        (read(slots_[number % kEntries], e) && e.number == number))
      return number == 0 ? FlightEntry() : e;
  }
}

FlightRing::Snapshot FlightRing::snapshot() const {
  Snapshot all;
  std::lock_guard lock(mutex_);
  all.groups = groups_;
  for (size_t i = 0; slots_ && i < kEntries; ++i) {
    FlightEntry e;
    // A slot that is being rewritten is soon complete, so try more than once.
    for (int attempt = 0; attempt < 100; ++attempt)
      if (read(slots_[i], e)) {
        all.entries.push_back(std::move(e));
        break;
      }
  }
  std::sort(all.entries.begin(), all.entries.end(),
            [](const FlightEntry& a, const FlightEntry& b) {
              return a.number < b.number;
            });
  all.now = now();
  return all;
}

}  // namespace dtensor
