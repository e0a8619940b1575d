// How the ranks of a run reach each other.
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

// One per run where ranks are threads, one per process where they are not. All
// members may be called by several ranks at once.
class Backend {
 public:
  // Each rank has two threads that communicate: its own (lane 0) and the one
  // that carries out what need not be waited for (lane 1). Their collectives
  // never mix.
  static constexpr int kLanes = 2;
  virtual ~Backend() = default;

  // How long a rank may wait for others in a collective; then all ranks of the
  // run throw the Error that not_all_came() (agreement.h) puts into words. 0:
  // as long as they take. Called by run() before there are ranks; without it
  // there is no such limit. Who has nobody to wait for takes no notice.
  virtual void set_timeout(std::chrono::milliseconds) {}

  // The ranks of the run that are threads of this process: [first, second).
  // All of them, unless it says otherwise.
  virtual std::pair<int64_t, int64_t> local_ranks(int64_t world) const {
    return {0, world};
  }
  // How a process's ranks have ended: the first one's failure, `own` when it is
  // not that of a peer.
  struct Failure {
    int64_t rank;
    bool own;
    std::string text;
  };
  // Whether the streams of ranks of one process wait for each other's events in
  // collectives, so that they are captured together.
  virtual bool joins_streams() const { return true; }
  // Called once by each process when its ranks are done: how all have ended.
  // The same in every process.
  virtual std::optional<Failure> conclude(const std::optional<Failure>& here) {
    return here;
  }

  // The group of these ranks of the run in this order, as `me`, one of them,
  // sees it. Collective only in that all members have to ask for it before it
  // is used. To be used by one thread; the backend outlives it.
  virtual std::unique_ptr<Communicator> group(std::span<const int64_t> ranks,
                                              int64_t me, int lane) = 0;

  // How long others were blocked in collectives of its own thread until this
  // rank came, in all, as far as they slept. Asked when all have left.
  virtual std::chrono::nanoseconds waited_for(int64_t /*rank*/) { return {}; }

  // Called when a rank's thread of this lane fails: all that wait in the lane,
  // or will, are released with a PeerFailed that says `what`.
  virtual void failed(int64_t rank, int lane,
                      std::string_view what) noexcept = 0;
  // Called when a rank is about to be done: throws what was found out about
  // what it has been given, though no collective came after that.
  virtual void check() {}
  // Called when a rank is done: those that wait for it, or will, are released
  // with a PeerLeft.
  virtual void left(int64_t rank) noexcept = 0;

  // While set, the rank's thread of this lane waits for its other one, or for
  // work: what finds that all ranks wait for each other has to know. Set before
  // that begins and reset before it can end.
  virtual void set_idle(int64_t /*rank*/, int /*lane*/, bool) noexcept {}
};

using BackendFactory = std::function<std::shared_ptr<Backend>(int64_t world)>;

// The backends by name: "threads"; "tcp", and "mpi" in programs that are built
// with it, both with so many ranks in each process; and "nccl", over that of
// these that fits who has started this process, which looks for GPUs when it is
// made. Throws Error for others.
BackendFactory backend_named(std::string_view name,
                             int64_t ranks_per_process = 1);

}  // namespace dtensor
