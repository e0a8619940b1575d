// Collectives among ranks that are threads of one process: a member reads its
// peers' memory in place, between two barriers. No packing, no padding. The
// ranks' devices reach each other's memory: the CPU, one GPU for all, GPUs with
// peer access. On GPUs it is streams that wait, for the peers' events; the host
// waits for no work.
#pragma once
#include <cstdint>
#include <memory>

#include "dtensor/comm/hub_backend.h"

namespace dtensor {

std::shared_ptr<HubBackend> thread_backend(int64_t world);

}  // namespace dtensor
