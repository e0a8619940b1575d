// SPDX-License-Identifier: Apache-2.0
// The members of a group, and what they show each other.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "dtensor/comm/agreement.h"
#include "dtensor/comm/barrier.h"

namespace dtensor {

class HostCommunicator;

// The message by which a process tells another one that its members have come.
// A short message of any transport holds it.
struct alignas(64) Message {
  struct Header {
    uint64_t print;       // a hash of the call and the group
    uint64_t agreed;      // 1: all members of the process make this call
    uint64_t has_packed;  // 1: the payload is packed transfers
    uint64_t unused;      // aligns the payload
  };
  static constexpr int64_t kPayload = 4096 - sizeof(Header);
  Header header;
  char payload[kPayload];
};

// A member shows this to the other members of its process. It has two slots and
// uses them alternately. By the time it rewrites one, all members have met
// for the other, and so have finished with this one.
struct alignas(64) Slot {
  // One before the peers' memory is read, and one at the end.
  static constexpr int kEvents = 2;

  uint64_t fingerprint;
  // The number of the last collective that used this slot; any thread may read
  // it at any time.
  std::atomic<uint64_t> sequence = 0;
  const Device* device = nullptr;
  // Read only while the collective is open: a member may leave when all members
  // have met at its end.
  const Collective* collective;
  const HostCommunicator* member;
  // Those of the collective, here so that peers read one cache line less.
  Transfer* transfers;
  Buffer* buffers;
  // Short data travels here, and so the collective ends without a meeting. It
  // begins a pair of cache lines, because processors fetch lines in pairs: a
  // peer that reads the fields above must not take data that is still written.
  alignas(128) char shown[Message::kPayload];
  // Events of the member's stream, for devices that run work asynchronously.
  Event events[kEvents];
};

// The state that the members of one process share.
struct Group {
  // Another process with members, and the message that it sent for the
  // collective that is open.
  struct Peer {
    std::vector<int> members;  // ascending
    bool sent_packed = false;  // this process sent it packed transfers
    Message message = {};
  };

  // `process` is this process; each has so many ranks.
  Group(std::vector<int64_t> world_ranks, int64_t ranks_per_process,
        int process, int lane_number, bool spin);

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
  int64_t rank_at(size_t place) const {
    return ranks[static_cast<size_t>(members[place])];
  }

  const std::vector<int64_t> ranks;  // including those of other processes
  const int lane;
  const std::vector<int> members;  // of this process, ascending
  std::vector<Peer> peers;         // by first member
  std::vector<int> peer_of;        // by member: index in peers; -1: here
  // By member: its place among the members of its process.
  std::vector<size_t> place_of;
  size_t most_members = 0;              // in one process
  uint64_t hash;                        // of ranks
  Barrier barrier;                      // of the members here
  const std::unique_ptr<Slot[]> slots;  // two of each member here
  // Why the members do not agree, as the first member here found out for all.
  std::exception_ptr verdict;
};

}  // namespace dtensor
