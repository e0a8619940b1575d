// The common part of backends for ranks that are threads of one process. Ranks
// meet in hubs, one for each lane.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/comm/host_backend.h"
#include "dtensor/comm/thread_hub.h"

namespace dtensor {

class HubBackend : public HostBackend {
 public:
  explicit HubBackend(int64_t world);
  void set_timeout(std::chrono::milliseconds) override;
  std::chrono::nanoseconds waited_for(int64_t rank) override;
  void failed(int64_t rank, int lane, std::string_view what) noexcept override;
  void left(int64_t rank) noexcept override;
  void set_idle(int64_t rank, int lane, bool idle) noexcept override;
  std::unique_ptr<AgreementChannel> agreement_channel(
      std::span<const int64_t> ranks, int64_t me, int lane) override;
  // As failed(), for a rank of another process. `why` is the complete cause; if
  // `everybodys`, it is the whole text of every rank's error.
  void stop(int64_t rank, int lane, std::string why, bool everybodys) noexcept {
    hub(lane).stop(rank, std::move(why), everybodys);
  }
  // For a group with members in other processes, so that its members do not
  // meet here: records the calls of its members here, for errors.
  Group& group_elsewhere(const std::vector<int64_t>& ranks, int lane) {
    return hub(lane).group(ranks);
  }
  void note(int lane, const Group& group, size_t member, const Call& call,
            uint64_t sequence) {
    hub(lane).note(group, member, call, sequence);
  }
  // See ThreadHub::waited_for().
  Waited& waited(int64_t rank, int lane) { return hub(lane).waited_for(rank); }
  LastCall::Value last_call(int64_t rank, int lane) {
    return hub(lane).last(rank);
  }
  // See ThreadHub.
  bool has_come(const std::vector<int64_t>& group, int64_t rank, int lane,
                uint64_t sequence) {
    return hub(lane).has_come(group, rank, sequence);
  }
  bool is_idle(int64_t rank, int lane) { return hub(lane).is_idle(rank); }

 protected:
  // One member's place in a group.
  struct Membership {
    ThreadHub& hub;
    Group& group;
    int index;
  };
  // Throws Error if `me` is not one of the ranks.
  Membership join(std::span<const int64_t> ranks, int64_t me, int lane);

 private:
  ThreadHub& hub(int lane) { return lane == 0 ? first_ : second_; }

  ThreadHub first_, second_;
};

}  // namespace dtensor
