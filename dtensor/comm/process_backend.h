// Ranks that are threads of several processes. Those of one process read each
// other's memory; what crosses processes is sent, once for all ranks of a
// process that take it.
//
// Reductions add up in the order of the members, as thread ranks do: the same
// bits.
#pragma once
#include <cstdint>
#include <memory>

#include "dtensor/comm/host_backend.h"
#include "dtensor/comm/transport.h"

namespace dtensor {

// Called by all processes of the run. Ranks 0 .. ranks_per_process - 1 are
// threads of the transport's process 0, and so on. Throws Error when the
// processes have no place for so many ranks.
std::shared_ptr<HostBackend> process_backend(int64_t world,
                                             int64_t ranks_per_process,
                                             std::unique_ptr<Transport>);

}  // namespace dtensor
