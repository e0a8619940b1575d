// Collectives among ranks that are threads of one process. A member reads its
// peers' memory in place, between two barriers, without packing or padding. The
// ranks' devices must reach each other's memory: the CPU, one GPU shared by all
// ranks, or GPUs with peer access. On GPUs, streams wait for the peers' events;
// the host never waits for work.
#pragma once
#include <cstdint>
#include <memory>

#include "dtensor/comm/hub_backend.h"

namespace dtensor {

std::shared_ptr<HubBackend> thread_backend(int64_t world);

}  // namespace dtensor
