// The backend of ranks that are threads, of this process or of several. Another
// backend, which moves the data itself, can be built on it; then it lets the
// ranks agree, notice failures, and keep the deadline.
//
// Ranks of one process read each other's memory. Data that crosses processes is
// sent once per receiving process, for all of its ranks that take it.
// Reductions add in member order, so the results have the same bits.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "dtensor/comm/host_communicator.h"
#include "dtensor/comm/membership.h"

namespace dtensor {

class HostBackend final : public Backend {
 public:
  // See Membership's constructors. Called by all processes of the run.
  explicit HostBackend(int64_t world) : run_(world) {}
  HostBackend(int64_t world, int64_t ranks_per_process,
              std::unique_ptr<Transport> transport)
      : run_(world, ranks_per_process, std::move(transport)) {}

  std::unique_ptr<Communicator> group(std::span<const int64_t> ranks,
                                      int64_t me, int lane) override {
    return join(ranks, me, lane, false);
  }
  // As group(), for agreement alone.
  std::unique_ptr<HostCommunicator> agreement_channel(
      std::span<const int64_t> ranks, int64_t me, int lane) {
    return join(ranks, me, lane, true);
  }
  // Registers a function that some thread calls once per lane, when a rank of
  // any process has failed. When this returns, a function registered earlier is
  // no longer called. The failure lives as long as this object.
  void when_failed(std::function<void(int lane, const RankFailure&)> told) {
    run_.when_failed(std::move(told));
  }

  void set_timeout(std::chrono::milliseconds timeout) override {
    run_.set_timeout(timeout);
  }
  std::pair<int64_t, int64_t> local_ranks(int64_t) const override {
    return {run_.first_rank(), run_.last_rank()};
  }
  std::optional<Failure> conclude(const std::optional<Failure>& here) override {
    return run_.conclude(here);
  }
  std::chrono::nanoseconds waited_for(int64_t rank) override {
    return run_.waited_for(rank);
  }
  void failed(int64_t rank, int lane, std::string_view what) noexcept override {
    run_.failed(rank, lane, what);
  }
  void left(int64_t rank) noexcept override { run_.left(rank); }
  FlightRing* flight(int64_t rank, int lane) override {
    return &run_.flight(rank, lane);
  }
  void set_idle(int64_t rank, int lane, bool idle) noexcept override {
    run_.set_idle(rank, lane, idle);
  }

 private:
  // Throws Error if `me` is not one of the ranks.
  std::unique_ptr<HostCommunicator> join(std::span<const int64_t> ranks,
                                         int64_t me, int lane, bool shows);

  Membership run_;
};

}  // namespace dtensor
