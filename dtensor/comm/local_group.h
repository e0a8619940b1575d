// The members of a group that are threads of this process, where others are
// not.
#pragma once
#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include "dtensor/comm/agreement.h"
#include "dtensor/comm/barrier.h"
#include "dtensor/comm/packed_messages.h"
#include "dtensor/comm/thread_rendezvous.h"

namespace dtensor {

struct LocalGroup {
  // What a member shows the others here, from the rendezvous at the beginning
  // of a collective until the one at its end.
  struct alignas(64) Membership {
    const Collective* collective = nullptr;
    std::span<const PackedMessages> packed;  // of its transfers
    void* out = nullptr;                     // of all_gather_bytes()
    // What it has received for all of them, by transfer and member: packed.
    const std::vector<const void*>* received = nullptr;
    bool failed = false;          // it has not received everything
    std::span<const char> shows;  // with its call: see AgreementChannel
  };

  LocalGroup(Group& whole_group, std::vector<int> member_indices, bool spin)
      : whole(whole_group),
        members(std::move(member_indices)),
        barrier(static_cast<int>(members.size()), spin),
        places(members.size()) {}

  Group& whole;                    // with the members elsewhere
  const std::vector<int> members;  // indices in the group, ascending
  Barrier barrier;
  std::vector<Membership> places;
  std::exception_ptr verdict;  // of the first member, for all
  std::vector<char> shown;     // by all members of the group, one after another
};

}  // namespace dtensor
