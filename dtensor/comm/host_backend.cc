#include "dtensor/comm/host_backend.h"

#include <algorithm>

#include "dtensor/placement/error.h"

namespace dtensor {

std::unique_ptr<HostCommunicator> HostBackend::join(
    std::span<const int64_t> ranks, int64_t me, int lane, bool shows) {
  const auto at = std::find(ranks.begin(), ranks.end(), me);
  DT_CHECK(at != ranks.end(), "communicator",
           "rank {} asks for a group of which it is not a member", me);
  const int index = static_cast<int>(at - ranks.begin());
  Group& group = members({ranks.begin(), ranks.end()}, lane);
  constexpr int64_t kMost = HostCommunicator::kMostRanks;
  DT_CHECK(!shows || group.peers.empty() || ranks_per_process() <= kMost,
           "communicator",
           "each process has {} ranks, but at most {} can agree on what they "
           "send through NCCL; write --ranks-per-process {} or less",
           ranks_per_process(), kMost, kMost);
  return std::make_unique<HostCommunicator>(*this, group, index);
}

}  // namespace dtensor
