// One member of a group that shares memory. It shows the others its call and
// where its data lies, and reads what they show.
//
// A collective is open from the moment when all members have come until all
// have closed it. In between, others may read this member's memory, so the
// member must not leave.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "dtensor/comm/agreement.h"
#include "dtensor/comm/barrier.h"

namespace dtensor {

class ThreadHub;

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
  // Short data travels here, and needs no close().
  alignas(64) char small[kSmall];
  // Events of the member's stream, for devices that run work asynchronously.
  Event events[kEvents];
};

// The state that the members share.
struct Group {
  Group(std::vector<int64_t> world_ranks, bool spin)
      : ranks(std::move(world_ranks)),
        barrier(static_cast<int>(ranks.size()), spin),
        slots(std::make_unique<Slot[]>(2 * ranks.size())) {}

  Slot& slot(size_t member, uint64_t sequence) const {
    return slots[2 * member + sequence % 2];
  }
  // Whether the member has come to that collective. May be called by any
  // thread.
  bool has_come(size_t member, uint64_t sequence) const {
    return slot(member, sequence).sequence.load(std::memory_order_acquire) >=
           sequence;
  }

  const std::vector<int64_t> ranks;
  Barrier barrier;
  const std::unique_ptr<Slot[]> slots;  // two of each member
};

class ThreadRendezvous {
 public:
  ThreadRendezvous(ThreadHub& hub, Group& group, int index)
      : hub_(hub),
        group_(group),
        rank_(index),
        waited_for_(&waited_for(hub, group, index)) {}

  // This member's slot for collective number `sequence`, the next one. Fill in
  // anything shown beside the call before open().
  Slot& own(uint64_t sequence);
  // Waits for all members and compares their calls. Throws what disagree()
  // throws, or why some members will not come. Bytes of an all_gather_bytes
  // that fit into the slot are copied into it.
  void open(const Collective&);
  // Valid between open() and close(); the small bytes, the events and the
  // device stay valid until the next open().
  const Collective& of(int m) const { return *slot(m).collective; }
  char* small_of(int m) const { return slot(m).small; }
  const Event* events_of(int m) const { return slot(m).events; }
  const Device& device_of(int m) const { return *slot(m).device; }
  int64_t world(int m) const { return group_.ranks[static_cast<size_t>(m)]; }
  // out[m] = the `bytes` bytes of member m, for the call that is open. Closes
  // the collective.
  void gather(int64_t bytes, void* out);
  // Waits until all members have come to this point of the collective. They all
  // come, since no member leaves after open().
  void close() { group_.barrier.wait_unbroken(*waited_for_); }

  // Calls fn() and then close(), even if fn() throws.
  template <class Fn>
  void close_after(Fn&& fn) {
    std::exception_ptr error;
    try {
      fn();
    } catch (...) {
      error = std::current_exception();
    }
    close();
    if (error) std::rethrow_exception(error);
  }

 private:
  Slot& slot(int m) const {
    return group_.slot(static_cast<size_t>(m), sequence_);
  }

  static Waited& waited_for(ThreadHub&, const Group&, int index);

  ThreadHub& hub_;
  Group& group_;
  const int rank_;
  Waited* const waited_for_;  // ThreadHub::waited_for() of this rank
  uint64_t sequence_ = 0;
  std::unique_ptr<Slot> scratch_;
};

}  // namespace dtensor
