#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
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
  ~NcclBackend() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    stop_.notify_all();
    if (watch_.joinable()) watch_.join();
  }

  void set_timeout(std::chrono::milliseconds timeout) override {
    HubBackend::set_timeout(timeout);
    DT_CHECK(!watch_.joinable(), "nccl", "its timeout is set already");
    patience_ = timeout;
    if (timeout.count() > 0) watch_ = std::thread([this] { watch(); });
  }

  std::unique_ptr<Communicator> group(std::span<const int64_t> ranks,
                                      int64_t me, int lane) override {
    const Seat seat = take_seat(ranks, me, lane);
    const auto link = std::make_shared<SafeLink>(patience_);
    {
      std::lock_guard lock(mutex_);
      std::vector<Member>& links = links_[lane];
      std::erase_if(links, [](const Member& l) { return l.link.expired(); });
      links.push_back({me, link});
    }
    return std::make_unique<NcclCommunicator>(seat.hub, seat.group, seat.index,
                                              library_, link);
  }

  // What the others gave to their GPUs waits there for this rank's part.
  void failed(int64_t rank, int lane, std::string_view what) noexcept override {
    HubBackend::failed(rank, lane, what);
    std::lock_guard lock(mutex_);
    if (!failed_) try {
        failed_ = rank;
        why_ = what;
      } catch (...) {  // there may be no memory left; few letters need none
        why_ = "out of memory";
      }
    for (const Member& m : links_[lane])
      if (const auto link = m.link.lock()) link->abort(rank, what);
  }

  void check() override {
    std::lock_guard lock(mutex_);
    if (failed_) throw PeerFailed("run", *failed_, why_);
  }

 private:
  struct Member {
    int64_t rank;
    std::weak_ptr<SafeLink> link;
  };

  // Finds what a GPU does not end: nobody else looks while the host waits for
  // it.
  void watch() {
    const auto period = std::clamp<std::chrono::milliseconds>(
        patience_ / 10, std::chrono::milliseconds(1), std::chrono::seconds(1));
    std::unique_lock lock(mutex_);
    while (!stop_.wait_for(lock, period, [&] { return stopping_; })) {
      if (failed_) return;
      std::vector<Member> all;
      for (const auto& links : links_)
        all.insert(all.end(), links.begin(), links.end());
      lock.unlock();
      for (const Member& m : all)
        if (const std::string what = late(m); !what.empty())
          for (int lane = 0; lane < kLanes; ++lane) failed(m.rank, lane, what);
      lock.lock();
    }
  }
  // What is wrong, or nothing.
  std::string late(const Member& m) const {
    const auto link = m.link.lock();
    if (!link) return {};
    try {
      const auto kind = link->overdue(SafeLink::Clock::now());
      if (!kind) return {};
      return fmt::format(
          "[{}] its GPU has been at it for {} s: another GPU, or a network "
          "between them, does not answer; NCCL_DEBUG=INFO shows which",
          name(*kind), std::chrono::duration<double>(patience_).count());
    } catch (const std::exception& e) {
      return e.what();  // of a device that has failed
    }
  }

  NcclLibrary& library_;
  std::chrono::milliseconds patience_{0};  // 0: without end
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::vector<Member> links_[kLanes];
  std::optional<int64_t> failed_;  // the first one, and why
  std::string why_;
  std::thread watch_;
};

}  // namespace

std::shared_ptr<Backend> nccl_backend(int64_t world, NcclLibrary& library) {
  return std::make_shared<NcclBackend>(world, library);
}

std::shared_ptr<Backend> nccl_backend(int64_t world) {
  return nccl_backend(world, cuda_nccl());
}

}  // namespace dtensor
