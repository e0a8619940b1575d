#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "dtensor/runtime/comm/hub_backend.h"
#include "dtensor/runtime/comm/nccl.h"
#include "dtensor/runtime/comm/nccl/nccl_communicator.h"
#include "dtensor/runtime/device/cuda.h"

namespace dtensor {
namespace {

class NcclBackend final : public HubBackend {
 public:
  NcclBackend(int64_t world, NcclLibrary& library)
      : HubBackend(world), library_(library) {}

  std::unique_ptr<Communicator> group(std::span<const int64_t> ranks,
                                      int64_t me, int lane) override {
    const Seat seat = take_seat(ranks, me, lane);
    const auto link = std::make_shared<SafeLink>();
    {
      std::lock_guard lock(mutex_);
      std::vector<std::weak_ptr<SafeLink>>& links = links_[lane];
      std::erase_if(links, [](const auto& l) { return l.expired(); });
      links.push_back(link);
    }
    return std::make_unique<NcclCommunicator>(seat.hub, seat.group, seat.index,
                                              library_, link);
  }

  // What the others gave to their GPUs waits there for this rank's part.
  void failed(int64_t rank, int lane, std::string_view what) noexcept override {
    HubBackend::failed(rank, lane, what);
    std::lock_guard lock(mutex_);
    for (const auto& weak : links_[lane])
      if (const auto link = weak.lock()) link->abort(rank, what);
  }

 private:
  NcclLibrary& library_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<SafeLink>> links_[kLanes];
};

}  // namespace

std::shared_ptr<Backend> nccl_backend(int64_t world, NcclLibrary& library) {
  return std::make_shared<NcclBackend>(world, library);
}

std::shared_ptr<Backend> nccl_backend(int64_t world) {
  return nccl_backend(world, cuda_nccl());
}

}  // namespace dtensor
