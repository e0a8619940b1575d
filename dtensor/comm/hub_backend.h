// The common part of backends for ranks that are threads of one process.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "dtensor/comm/host_backend.h"
#include "dtensor/comm/membership.h"

namespace dtensor {

class HubBackend : public HostBackend {
 public:
  explicit HubBackend(int64_t world) : run_(world) {}
  void set_timeout(std::chrono::milliseconds timeout) override {
    run_.set_timeout(timeout);
  }
  std::chrono::nanoseconds waited_for(int64_t rank) override {
    return run_.waited_for(rank);
  }
  void failed(int64_t rank, int lane, std::string_view what) noexcept override {
    run_.failed(rank, lane, what);
  }
  void left(int64_t rank) noexcept override { run_.left(rank); }
  void set_idle(int64_t rank, int lane, bool idle) noexcept override {
    run_.set_idle(rank, lane, idle);
  }
  std::unique_ptr<AgreementChannel> agreement_channel(
      std::span<const int64_t> ranks, int64_t me, int lane) override;
  // For a run with ranks in other processes.
  Membership& membership() { return run_; }

 protected:
  // One member's place in a group.
  struct Place {
    Group& group;
    int index;
  };
  // Throws Error if `me` is not one of the ranks.
  Place join(std::span<const int64_t> ranks, int64_t me, int lane);

  Membership run_;
};

}  // namespace dtensor
