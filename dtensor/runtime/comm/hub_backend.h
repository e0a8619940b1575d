// What backends have in common whose ranks are threads of one process: they
// meet in hubs, one of each lane.
#pragma once
#include <chrono>
#include <cstdint>
#include <span>
#include <string_view>

#include "dtensor/runtime/comm/backend.h"
#include "dtensor/runtime/comm/thread_hub.h"

namespace dtensor {

class HubBackend : public Backend {
 public:
  explicit HubBackend(int64_t world);
  void set_timeout(std::chrono::milliseconds) override;
  std::chrono::nanoseconds waited_for(int64_t rank) override;
  void failed(int64_t rank, int lane, std::string_view what) noexcept override;
  void left(int64_t rank) noexcept override;
  void set_idle(int64_t rank, int lane, bool idle) noexcept override;

 protected:
  // One member's place in a group.
  struct Seat {
    ThreadHub& hub;
    Group& group;
    int index;
  };
  // Throws Error when `me` is none of the ranks.
  Seat take_seat(std::span<const int64_t> ranks, int64_t me, int lane);

 private:
  ThreadHub& hub(int lane) { return lane == 0 ? first_ : second_; }

  ThreadHub first_, second_;
};

}  // namespace dtensor
