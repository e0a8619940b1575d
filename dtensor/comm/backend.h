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

// There is one backend per run if all ranks are threads of this process, and
// one per process otherwise. Several ranks may call its members at once.
class Backend {
 public:
  // Each rank has two threads that communicate: its main thread (lane 0) and
  // one that runs asynchronous redistributions (lane 1). Collectives of
  // different lanes never mix.
  static constexpr int kLanes = 2;
  virtual ~Backend() = default;

  // How long a rank may wait for others in a collective. After that, all ranks
  // of the run throw the Error of not_all_came() (agreement.h). 0, the default,
  // means no limit. run() calls this before it starts the ranks. A backend in
  // which ranks never wait ignores it.
  virtual void set_timeout(std::chrono::milliseconds) {}
  // Whether each message between processes carries a checksum; see
  // RunOptions::checksum. run() calls this before it starts the ranks.
  virtual void set_checksum(bool) {}

  // The ranks of the run that are threads of this process: [first, second). By
  // default all of them.
  virtual std::pair<int64_t, int64_t> local_ranks(int64_t world) const {
    return {0, world};
  }
  // How the ranks of a process ended, if one failed: its first failure. `own`
  // is false if that rank only reports the failure of a peer.
  struct Failure {
    int64_t rank;
    bool own;
    std::string text;
  };
  // Whether the streams of ranks in one process wait for each other's events in
  // collectives. Such streams must be captured into a graph together.
  virtual bool joins_streams() const { return true; }
  // Each process calls this once, when its ranks have ended. Returns how all
  // ranks of the run ended, the same in every process.
  virtual std::optional<Failure> conclude(const std::optional<Failure>& here) {
    return here;
  }

  // The group of these ranks of the run, in this order, as seen by `me`, one of
  // them. All members must create the group before any of them uses it, but the
  // call itself does not wait. The communicator is for one thread, and the
  // backend outlives it.
  virtual std::unique_ptr<Communicator> group(std::span<const int64_t> ranks,
                                              int64_t me, int lane) = 0;

  // The total time for which other ranks slept in collectives of lane 0 until
  // this rank came. Time spent polling is not included. Call it when all ranks
  // have left.
  virtual std::chrono::nanoseconds waited_for(int64_t /*rank*/) { return {}; }

  // Called when this rank's thread in `lane` fails. All ranks that wait in the
  // lane, now or later, throw a PeerFailed that says `what`.
  virtual void failed(int64_t rank, int lane,
                      std::string_view what) noexcept = 0;
  // Called just before a rank finishes. Throws an error in work of this rank
  // that no later collective has reported.
  virtual void check() {}
  // Called when a rank has finished. Ranks that wait for it, now or later,
  // throw a PeerLeft.
  virtual void left(int64_t rank) noexcept = 0;

  // Where the communicators of this rank of this process record their calls,
  // for errors and for the flight recorder; null in a backend in which ranks
  // never wait. RankContext passes it to Communicator::set_flight().
  virtual FlightRing* flight(int64_t /*rank*/, int /*lane*/) { return nullptr; }

  // While set, the rank's thread in this lane waits for the rank's other
  // thread, or for work, so that deadlock detection can follow it. Set it
  // before the wait begins and reset it before the wait can end.
  virtual void set_idle(int64_t /*rank*/, int /*lane*/, bool) noexcept {}
};

// Returns the backend of this name; throws Error for an unknown name.
using BackendFactory = std::function<std::shared_ptr<Backend>(int64_t world)>;

// "threads", "nccl", or a row of process_backend.h, such as "mpi"; threads take
// no ranks_per_process. "nccl" runs over the backend of the launcher that
// started this process, and looks for GPUs when the factory is called.
BackendFactory backend_named(std::string_view name,
                             int64_t ranks_per_process = 1);
// The backend of a dry run: its only rank knows the size of its groups and
// never waits for others. Its communicators move nothing and count nothing;
// all_gather_bytes() returns the caller's own bytes for every member.
std::shared_ptr<Backend> null_backend();
// The row whose launcher started this process as one of several, if it is built
// in; else "threads".
std::string_view backend_by_launcher();

}  // namespace dtensor
