// Collectives among ranks that are threads of one process: a member reads its
// peers' memory in place, between two barriers. No packing, no padding.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "dtensor/runtime/comm/communicator.h"
#include "dtensor/runtime/comm/thread_hub.h"

namespace dtensor {

// `world_ranks` in order, of which the caller is `world_rank`. The hub outlives
// it. To be used by one thread.
std::unique_ptr<Communicator> thread_communicator(
    ThreadHub&, const std::vector<int64_t>& world_ranks, int64_t world_rank);

}  // namespace dtensor
