#include "dtensor/comm/process_backend.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "dtensor/comm/process_communicator.h"
#include "dtensor/comm/process_run.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

class ProcessBackend final : public HostBackend {
 public:
  ProcessBackend(int64_t world, int64_t ranks_per_process,
                 std::unique_ptr<Transport> transport)
      : run_(world, ranks_per_process, std::move(transport)) {}

  void set_timeout(std::chrono::milliseconds timeout) override {
    run_.set_timeout(timeout);
  }
  std::unique_ptr<Communicator> group(std::span<const int64_t> ranks,
                                      int64_t me, int lane) override {
    if (ranks.size() > 1 && all_here(ranks))
      return run_.threads().group(ranks, me, lane);
    return member(ranks, me, lane);
  }
  std::unique_ptr<AgreementChannel> agreement_channel(
      std::span<const int64_t> ranks, int64_t me, int lane) override {
    if (all_here(ranks))
      return run_.threads().agreement_channel(ranks, me, lane);
    constexpr int64_t kMost = ProcessCommunicator::kMostShow();
    DT_CHECK(run_.ranks_per_process() <= kMost, "communicator",
             "each process has {} ranks, but at most {} can agree on what they "
             "send through NCCL; write --ranks-per-process {} or less",
             run_.ranks_per_process(), kMost, kMost);
    return member(ranks, me, lane);
  }
  void when_others_fail(
      std::function<void(const RemoteFailure&)> told) override {
    run_.when_others_fail(std::move(told));
  }
  void failed(int64_t rank, int lane, std::string_view what) noexcept override {
    run_.failed(rank, lane, what);
  }
  void left(int64_t rank) noexcept override { run_.left(rank); }
  std::chrono::nanoseconds waited_for(int64_t rank) override {
    return run_.waited_for(rank);
  }
  void set_idle(int64_t rank, int lane, bool idle) noexcept override {
    run_.threads().set_idle(rank, lane, idle);
  }
  std::pair<int64_t, int64_t> local_ranks(int64_t) const override {
    return {run_.first_rank(), run_.last_rank()};
  }
  std::optional<Failure> conclude(const std::optional<Failure>& here) override {
    return run_.conclude(here);
  }

 private:
  bool all_here(std::span<const int64_t> ranks) const {
    return std::all_of(ranks.begin(), ranks.end(), [&](int64_t r) {
      return run_.first_rank() <= r && r < run_.last_rank();
    });
  }
  std::unique_ptr<ProcessCommunicator> member(std::span<const int64_t> ranks,
                                              int64_t me, int lane) {
    const auto at = std::find(ranks.begin(), ranks.end(), me);
    DT_CHECK(at != ranks.end(), "communicator",
             "rank {} asks for a group of which it is not a member", me);
    return std::make_unique<ProcessCommunicator>(
        run_, std::vector(ranks.begin(), ranks.end()),
        static_cast<int>(at - ranks.begin()), lane);
  }

  ProcessRun run_;
};

}  // namespace

std::shared_ptr<HostBackend> process_backend(
    int64_t world, int64_t ranks_per_process,
    std::unique_ptr<Transport> transport) {
  return std::make_shared<ProcessBackend>(world, ranks_per_process,
                                          std::move(transport));
}

}  // namespace dtensor
