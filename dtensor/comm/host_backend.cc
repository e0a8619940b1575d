#include "dtensor/comm/host_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "dtensor/comm/process_communicator.h"
#include "dtensor/comm/thread_rendezvous.h"
#include "dtensor/comm/threads.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

class ThreadAgreementChannel final : public AgreementChannel {
 public:
  ThreadAgreementChannel(Membership& run, Group& group, int index)
      : rendezvous_(run, group, index) {}
  void open(const Collective& c, const void* mine, int64_t bytes) override {
    static_assert(kMost <= Slot::kSmall);
    if (bytes > 0)
      std::memcpy(rendezvous_.own(c.sequence).small, mine,
                  static_cast<size_t>(bytes));
    rendezvous_.open(c);
  }
  const void* shown(int m) const override { return rendezvous_.small_of(m); }
  void gather(const void*, int64_t bytes, void* out) override {
    rendezvous_.gather(bytes, out);
  }

 private:
  ThreadRendezvous rendezvous_;
};

}  // namespace

HostBackend::Member HostBackend::join(std::span<const int64_t> ranks,
                                      int64_t me, int lane) {
  const auto at = std::find(ranks.begin(), ranks.end(), me);
  DT_CHECK(at != ranks.end(), "communicator",
           "rank {} asks for a group of which it is not a member", me);
  Group& group = run_.group({ranks.begin(), ranks.end()}, lane);
  return {group, static_cast<int>(at - ranks.begin()),
          group.members.size() == ranks.size()};
}

std::unique_ptr<Communicator> HostBackend::group(std::span<const int64_t> ranks,
                                                 int64_t me, int lane) {
  const Member m = join(ranks, me, lane);
  if (m.all_here) return thread_communicator(run_, m.group, m.index);
  return std::make_unique<ProcessCommunicator>(run_, m.group, m.index);
}

std::unique_ptr<AgreementChannel> HostBackend::agreement_channel(
    std::span<const int64_t> ranks, int64_t me, int lane) {
  const Member m = join(ranks, me, lane);
  if (m.all_here)
    return std::make_unique<ThreadAgreementChannel>(run_, m.group, m.index);
  constexpr int64_t kMost = ProcessCommunicator::kMostShow();
  DT_CHECK(run_.ranks_per_process() <= kMost, "communicator",
           "each process has {} ranks, but at most {} can agree on what they "
           "send through NCCL; write --ranks-per-process {} or less",
           run_.ranks_per_process(), kMost, kMost);
  return std::make_unique<ProcessCommunicator>(run_, m.group, m.index);
}

}  // namespace dtensor
