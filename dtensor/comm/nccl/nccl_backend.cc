// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/comm/host_backend.h"
#include "dtensor/comm/nccl.h"
#include "dtensor/comm/nccl/nccl_communicator.h"
#include "dtensor/device/cuda.h"

namespace dtensor {
namespace {

// A rank's second lane has a stream of its own, and the two lanes' calls may
// interleave differently on each rank. So the kernels of both lanes must be
// able to wait for peers at the same time.
void check_queues() {
  const char* queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  DT_CHECK(!queues || std::string_view(queues) != "1", "nccl",
           "CUDA_DEVICE_MAX_CONNECTIONS is 1, so the GPU has one queue for all "
           "streams, and ranks that call redistribute_async() may wait for "
           "each other forever; unset it, or set it to 8");
}

class NcclBackend final : public HostBackend {
 public:
  NcclBackend(int64_t world, int64_t ranks_per_process, ProcessJob* job,
              NcclLibrary& library)
      : HostBackend(world, ranks_per_process, job), library_(library) {
    observe({[this](int lane, const RankFailure& f) { abort_links(lane, f); },
             [this] { return overdue(); }});
  }
  ~NcclBackend() override { observe({}); }

  std::unique_ptr<Communicator> group(std::span<const int64_t> ranks,
                                      int64_t me, int lane) override {
    if (lane > 0) check_queues();
    const auto link = std::make_shared<SafeLink>(timeout());
    auto made = std::make_unique<NcclCommunicator>(*this, ranks, me, lane,
                                                   library_, link);
    std::lock_guard lock(mutex_);
    std::vector<Member>& links = links_[lane];
    std::erase_if(links, [](const Member& l) { return l.link.expired(); });
    links.push_back({me, link});
    if (failures_[lane]) link->abort(*failures_[lane]);
    return made;
  }

  void check() override {
    std::lock_guard lock(mutex_);
    for (const RankFailure* f : failures_)
      if (f) f->raise("run");
  }
  bool joins_streams() const override { return library_.joins_streams(); }

 private:
  struct Member {
    int64_t rank;
    std::weak_ptr<SafeLink> link;
  };

  // Aborts the lane's links of this process's ranks: work that they enqueued on
  // their GPUs may wait for work of the rank that failed, which will not come.
  void abort_links(int lane, const RankFailure& failure) noexcept {
    std::lock_guard lock(mutex_);
    failures_[lane] = &failure;
    for (const Member& m : links_[lane])
      if (const auto link = m.link.lock()) link->abort(failure);
  }

  // Finds work that a GPU does not finish in time. The rank that enqueued it
  // cannot do so itself while it waits for the GPU.
  std::vector<RankFailure> overdue() {
    std::vector<RankFailure> found;
    std::lock_guard lock(mutex_);
    if (failures_[0] || failures_[1]) return found;
    for (const std::vector<Member>& links : links_)
      for (const Member& m : links)
        if (std::string what = late(m); !what.empty())
          found.push_back({m.rank, std::move(what)});
    return found;
  }
  // Returns the error text if the member's work is late or its device has
  // failed, else "".
  std::string late(const Member& m) const {
    const auto link = m.link.lock();
    if (!link) return {};
    try {
      const auto kind = link->overdue(SafeLink::Clock::now());
      if (!kind) return {};
      return fmt::format(
          "[{}] the rank's GPU has been running this collective for {} s: "
          "another GPU, or a network between them, does not answer; "
          "NCCL_DEBUG=INFO shows which",
          name(*kind), std::chrono::duration<double>(timeout()).count());
    } catch (const std::exception& e) {
      return e.what();  // the device has failed
    }
  }

  NcclLibrary& library_;
  std::mutex mutex_;
  std::vector<Member> links_[kLanes];
  const RankFailure* failures_[kLanes] = {};
};

}  // namespace

DataBackend nccl_backend() {
  return {
      .name = "nccl",
      .between_gpus = "NCCL",
      .one_rank_per_gpu = true,
      .make = [](int64_t world, int64_t ranks_per_process, ProcessJob* job) {
        return nccl_backend(world, ranks_per_process, job);
      }};
}

std::shared_ptr<Backend> nccl_backend(int64_t world, int64_t ranks_per_process,
                                      ProcessJob* job, NcclLibrary* library) {
  return std::make_shared<NcclBackend>(world, ranks_per_process, job,
                                       library ? *library : cuda_nccl());
}

}  // namespace dtensor
