// One member of a group that shares memory. It shows the others its call and
// where its data lies, and reads what they show.
//
// A collective is open from the moment when all members have come until all
// have closed it. In between, others may read this member's memory, so the
// member must not leave.
#pragma once
#include <cstdint>
#include <exception>
#include <memory>

#include "dtensor/comm/membership.h"

namespace dtensor {

class ThreadRendezvous {
 public:
  // Member number `index` of a group whose members are all in this process.
  ThreadRendezvous(Membership& run, Group& group, int index)
      : run_(run), group_(group), place_(static_cast<size_t>(index)) {}

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
  void close() { run_.meet_again(group_, place_); }

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

  Membership& run_;
  Group& group_;
  const size_t place_;
  uint64_t sequence_ = 0;
  std::unique_ptr<Slot> scratch_;
};

}  // namespace dtensor
