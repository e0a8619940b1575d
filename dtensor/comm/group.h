// The members of a group that are threads of this process, and what they show
// each other.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "dtensor/comm/agreement.h"
#include "dtensor/comm/barrier.h"

namespace dtensor {

class PackedMessages;

// The data that a member shows the others. A member has two slots and uses them
// alternately. By the time it rewrites one, all members have met for the other,
// and so have finished with this one.
struct alignas(64) Slot {
  static constexpr int64_t kSmall = 1024;
  // One before the peers' memory is read, and one at the end.
  static constexpr int kEvents = 2;

  uint64_t fingerprint;
  // The number of the last collective that used this slot; any thread may read
  // it at any time.
  std::atomic<uint64_t> sequence = 0;
  const Collective* collective;
  const Device* device = nullptr;  // the member's
  // If other members are in other processes: the transfers, packed; the output
  // of all_gather_bytes(); messages that this member received for all members
  // here, by transfer and member; whether it did not receive everything; and
  // the bytes for AgreementChannel::shown().
  std::span<const PackedMessages> packed;
  void* out = nullptr;
  const std::vector<const void*>* received = nullptr;
  bool failed = false;
  std::span<const char> shows;
  // Short data travels here, and needs no close().
  alignas(64) char small[kSmall];
  // Events of the member's stream, for devices that run work asynchronously.
  Event events[kEvents];
};

// The state that the members of this process share.
struct Group {
  // `members_here` are indices of world_ranks, ascending.
  Group(std::vector<int64_t> world_ranks, std::vector<int> members_here,
        int lane_number, bool spin)
      : ranks(std::move(world_ranks)),
        members(std::move(members_here)),
        lane(lane_number),
        barrier(static_cast<int>(members.size()), spin),
        slots(std::make_unique<Slot[]>(2 * members.size())) {}

  // The place of member m among the members here.
  size_t place(int m) const {
    return static_cast<size_t>(
        std::lower_bound(members.begin(), members.end(), m) - members.begin());
  }
  int64_t rank_at(size_t place) const {
    return ranks[static_cast<size_t>(members[place])];
  }
  Slot& slot(size_t place, uint64_t sequence) const {
    return slots[2 * place + sequence % 2];
  }
  // The member comes to that collective.
  void come(size_t place, uint64_t sequence) const {
    slot(place, sequence).sequence.store(sequence, std::memory_order_release);
  }
  // Whether the member has come to that collective. May be called by any
  // thread.
  bool has_come(size_t place, uint64_t sequence) const {
    return slot(place, sequence).sequence.load(std::memory_order_acquire) >=
           sequence;
  }

  const std::vector<int64_t> ranks;  // including those of other processes
  const std::vector<int> members;
  const int lane;
  Barrier barrier;                      // of the members here
  const std::unique_ptr<Slot[]> slots;  // two of each member here
  // The first member here finds these out for all: an error, and the bytes that
  // all members have shown, in member order.
  std::exception_ptr verdict;
  std::vector<char> shown;
};

}  // namespace dtensor
