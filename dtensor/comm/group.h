// SPDX-License-Identifier: Apache-2.0
// The state of a group in one process, and the memory through which its members
// tell each other about their calls.
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

// The message by which a process tells another one that its members have come
// to a collective. The receiver knows only that the message has at most 4096
// bytes. So it fits into a short message of a Ring (ring.h), and into one piece
// of MPI (mpi/mpi_job.cc).
struct alignas(64) Message {
  struct Header {
    uint64_t print;       // a hash of the call and the group
    uint64_t agreed;      // 1: all members of the process make this call
    uint64_t has_packed;  // 1: the payload is packed transfers; 0: shown data
    uint64_t unused;      // padding: aligns the payload
  };
  static constexpr int64_t kPayload = 4096 - sizeof(Header);
  Header header;
  char payload[kPayload];
};

// The memory through which a member shows its call to the other members of its
// process. Each member has two slots and uses them alternately. Before a member
// rewrites one slot, all members have met for the call in the other slot. So
// they have finished reading the first one.
struct alignas(64) Slot {
  // A member records one event before the others read its memory, and one at
  // the end of the collective.
  static constexpr int kEvents = 2;

  uint64_t fingerprint;
  // The number of the last collective that used this slot; any thread may read
  // it at any time.
  std::atomic<uint64_t> sequence = 0;
  const Device* device = nullptr;
  // Other members may read these two only until the members meet for the last
  // time in the collective: then the owner may destroy both objects.
  const Collective* collective;
  const HostCommunicator* member;
  // Pointers of the collective, copied here so that other members have to read
  // one cache line fewer.
  Transfer* transfers;
  Buffer* buffers;
  // The owner copies short data here; the collective then needs no meeting at
  // its end. The array begins a new pair of cache lines, because processors
  // fetch lines in pairs: another member that reads the fields above must not
  // take away lines to which the owner still writes.
  alignas(128) char shown[Message::kPayload];
  // Events of the owner's stream, for devices that run work asynchronously.
  Event events[kEvents];
};

// A group as one process knows it. All members in this process share the
// object.
struct Group {
  // Another process that has members, and the message that it sent for the
  // current collective.
  struct Peer {
    std::vector<int> members;  // in ascending order
    bool sent_packed = false;  // this process sent packed transfers to it
    Message message = {};
  };

  // `process` is the number of this process; each process has up to
  // `ranks_per_process` ranks of the run.
  Group(std::vector<int64_t> world_ranks, int64_t ranks_per_process,
        int process, int lane_number, bool spin);

  Slot& slot(size_t place, uint64_t sequence) const {
    return slots[2 * place + sequence % 2];
  }
  // Says that the member at that place (see place_of) has come to the
  // collective with that number.
  void come(size_t place, uint64_t sequence) const {
    slot(place, sequence).sequence.store(sequence, std::memory_order_release);
  }
  // Whether the member has come to that collective. Any thread may call it.
  bool has_come(size_t place, uint64_t sequence) const {
    return slot(place, sequence).sequence.load(std::memory_order_acquire) >=
           sequence;
  }
  int64_t rank_at(size_t place) const {
    return ranks[static_cast<size_t>(members[place])];
  }

  const std::vector<int64_t> ranks;  // including those of other processes
  const int lane;
  const std::vector<int> members;  // of this process: indices in `ranks`
  std::vector<Peer> peers;         // in the order of processes
  std::vector<int> peer_of;  // each member's index in peers; -1: this process
  // For each member: its place among the members of its process.
  std::vector<size_t> place_of;
  size_t most_members = 0;              // the most members that one process has
  uint64_t hash;                        // a hash of `ranks`
  Barrier barrier;                      // for this process's members
  const std::unique_ptr<Slot[]> slots;  // two per member of this process
  // Why the members do not agree; null if they do. Used only if there are other
  // processes: the first member of this process sets it for all of them.
  std::exception_ptr verdict;
};

}  // namespace dtensor
