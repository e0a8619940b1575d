// The members of a group that are threads of this process, when other members
// are not.
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
  // The data that a member shows the others of this process, from the
  // rendezvous at the beginning of a collective to the one at its end.
  struct alignas(64) Membership {
    const Collective* collective = nullptr;
    std::span<const PackedMessages> packed;  // its transfers, packed
    void* out = nullptr;                     // the output of all_gather_bytes()
    // Packed messages that it received for all members here, by transfer and
    // member.
    const std::vector<const void*>* received = nullptr;
    bool failed = false;          // it did not receive everything
    std::span<const char> shows;  // see AgreementChannel
  };

  LocalGroup(Group& whole_group, std::vector<int> member_indices, bool spin)
      : whole(whole_group),
        members(std::move(member_indices)),
        barrier(static_cast<int>(members.size()), spin),
        places(members.size()) {}

  Group& whole;                    // including the members elsewhere
  const std::vector<int> members;  // indices in the group, ascending
  Barrier barrier;
  std::vector<Membership> places;
  std::exception_ptr verdict;  // the first member's error, for all
  std::vector<char> shown;     // by all members, in member order
};

}  // namespace dtensor
