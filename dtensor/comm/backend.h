// SPDX-License-Identifier: Apache-2.0
// How the ranks of a run communicate.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "dtensor/comm/communicator.h"
#include "dtensor/comm/peer_failed.h"
#include "dtensor/placement/error.h"

namespace dtensor {

// A run has one Backend if all its ranks are threads of this process; otherwise
// each process of the run has one. Several ranks may call it at once.
class Backend {
 public:
  // Each rank has two threads that call collectives: its main thread (lane 0)
  // and one that runs asynchronous redistributions (lane 1). A call in one lane
  // never matches a call in the other.
  static constexpr int kLanes = 2;
  virtual ~Backend() = default;

  // Sets how long a rank may wait for others in a collective. If a wait takes
  // longer, all ranks of the run throw an Error with the text of not_all_came()
  // (agreement.h); for the work of GPUs, see nccl_backend(). 0, the default,
  // means no limit. run() calls this before it starts the ranks. The backend of
  // a dry run ignores it.
  virtual void set_timeout(std::chrono::milliseconds) {}
  // Sets whether each message between processes carries a checksum; see
  // RunOptions::checksum. run() calls this before it starts the ranks.
  virtual void set_checksum(bool) {}

  // Returns the ranks of the run that are threads of this process, as a range
  // [first, second). By default, these are all ranks.
  virtual std::pair<int64_t, int64_t> local_ranks(int64_t world) const {
    return {0, world};
  }
  // How one rank failed. If several ranks of a process failed, the process
  // reports the lowest rank that failed by itself, or else the lowest.
  struct Failure {
    int64_t rank;
    bool own;  // false: the rank only reports the failure of another rank
    std::string text;
  };
  // Whether collectives make the streams of different ranks in a process wait
  // for each other's events. Such streams must be captured into a graph
  // together.
  virtual bool joins_streams() const { return true; }
  // Each process calls this once, when its ranks have ended; `here` is empty if
  // all of them succeeded. Waits for the other processes; ends this process and
  // the job if some of them do not answer. Returns the failure of the whole
  // run, the same in every process, or nothing if all ranks succeeded.
  virtual std::optional<Failure> conclude(const std::optional<Failure>& here) {
    return here;
  }

  // Makes the communicator of rank `me` for the group of these ranks of the
  // run, in this order. `me` is one of them. The call does not wait; the first
  // collective waits until all members have made their communicators and call
  // it. The communicator is for one thread, and the backend outlives it.
  virtual std::unique_ptr<Communicator> group(std::span<const int64_t> ranks,
                                              int64_t me, int lane) = 0;

  // Returns how long in total ranks of this process waited in collectives of
  // lane 0 for this rank to arrive. Leaves out short waits: those of at most 2
  // ms for a rank of another process, and those in which no thread sleeps for a
  // rank of this process. Call it when all ranks have left.
  virtual std::chrono::nanoseconds waited_for(int64_t /*rank*/) { return {}; }

  // Called when this rank's thread in `lane` fails. All ranks that wait in the
  // lane, now or later, throw the Error of the lane's first failure: usually a
  // PeerFailed with its `what` (see RankFailure).
  virtual void failed(int64_t rank, int lane,
                      std::string_view what) noexcept = 0;
  // Called just before a rank finishes. By default does nothing. With NCCL, a
  // failure also ends work that this rank has only enqueued, and a rank that
  // calls no further collective does not notice; so NCCL's check() throws if
  // the run has failed.
  virtual void check() {}
  // Called when a rank has finished without an error. Ranks that wait for it,
  // now or later, throw a PeerLeft.
  virtual void left(int64_t rank) noexcept = 0;

  // Returns the ring in which the communicators of a rank (of this process) in
  // a lane record their calls, for errors and for the flight recorder. Null in
  // the backend of a dry run. RankContext passes it to
  // Communicator::set_flight().
  virtual FlightRing* flight(int64_t /*rank*/, int /*lane*/) { return nullptr; }

  // Says whether the rank's thread in this lane waits for the rank's other
  // thread, or for work from it. The search for deadlocks
  // (membership_circle.cc) then goes on at the other thread. Call it with true
  // before the wait begins, and with false before the wait can end.
  virtual void set_idle(int64_t /*rank*/, int /*lane*/, bool) noexcept {}
};

// Makes the backend of a run with `world` ranks.
using BackendFactory = std::function<std::shared_ptr<Backend>(int64_t world)>;

// Returns the factory of the backend with this name: a row of a table of
// process_backend.h. Throws Error for an unknown name, and for a backend that
// is not built in. "threads" ignores ranks_per_process. Ranks that compute on
// GPUs ("nccl") are threads of the processes of backend_by_launcher(); the
// factory looks for GPUs when it is called.
BackendFactory backend_named(std::string_view name,
                             int64_t ranks_per_process = 1);
// Returns the backend of a dry run. Its only rank knows the size of its groups
// and never waits for others. Its communicators move nothing and count nothing;
// their all_gather_bytes() returns the caller's own bytes for every member.
std::shared_ptr<Backend> null_backend();
// If a launcher known to process_backend.h started this process as one of
// several, and the program is built with its backend, returns the backend's
// name; else "threads". Throws as ProcessBackend::started() does.
std::string_view backend_by_launcher();

}  // namespace dtensor
