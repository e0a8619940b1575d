// One member of a group whose members share memory: it shows the others what it
// calls and where its data lies, and reads what they show.
//
// A collective is open from the moment when all have come until all have closed
// it. In between, others may read this member's memory, so nothing may leave.
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

// What a member shows the others. It has two, used in turn: when it writes one
// again, all members have met for the other, and so have done with this one.
struct alignas(64) Slot {
  static constexpr int64_t kSmall = 1024;
  // Before the peers' memory is read, and in the end.
  static constexpr int kEvents = 2;

  uint64_t fingerprint;
  // The last collective that the member has come to, of those that use this
  // slot: for others, at any time.
  std::atomic<uint64_t> sequence = 0;
  const Collective* collective;
  const Device* device = nullptr;  // the member's
  // Few bytes travel here, and need no closing.
  alignas(64) char small[kSmall];
  // Of the member's stream, where work runs later.
  Event events[kEvents];
};

// What the members share.
struct Group {
  Group(std::vector<int64_t> world_ranks, bool spin)
      : ranks(std::move(world_ranks)),
        barrier(static_cast<int>(ranks.size()), spin),
        slots(std::make_unique<Slot[]>(2 * ranks.size())) {}

  Slot& slot(size_t member, uint64_t sequence) const {
    return slots[2 * member + sequence % 2];
  }
  // Whether the member has come to that collective. By any thread.
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

  // This member's slot of the next collective, the `sequence`-th: what it shows
  // in it beside the call is put there before that is opened.
  Slot& own(uint64_t sequence);
  // Waits for all, and compares. Throws what disagree() throws, or that some
  // will not come. (Few bytes of the call are put into the slot as well.)
  void open(const Collective&);
  // Between open() and close(); the small bytes, the events and the device
  // until the next open().
  const Collective& of(int m) const { return *slot(m).collective; }
  char* small_of(int m) const { return slot(m).small; }
  const Event* events_of(int m) const { return slot(m).events; }
  const Device& device_of(int m) const { return *slot(m).device; }
  int64_t world(int m) const { return group_.ranks[static_cast<size_t>(m)]; }
  // out[m] = member m's `bytes` bytes of the call that is open, and closes it.
  void gather(int64_t bytes, void* out);
  // Waits until all have come to the same point of the collective. They do:
  // after open() nobody leaves.
  void close() { group_.barrier.wait_unbroken(*waited_for_); }

  // fn(), and whatever it throws, then close().
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
