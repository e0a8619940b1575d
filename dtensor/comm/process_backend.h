// Ranks that are threads of several processes. Ranks of one process read each
// other's memory. Data that crosses processes is sent once per receiving
// process, for all of its ranks that take it.
//
// Reductions add in member order, as for thread ranks, so the results have the
// same bits.
#pragma once
#include <cstdint>
#include <memory>

#include "dtensor/comm/host_backend.h"
#include "dtensor/comm/transport.h"

namespace dtensor {

// Called by all processes of the run. Ranks 0 .. ranks_per_process - 1 are
// threads of the transport's process 0, and so on. Throws Error if there are
// more ranks than the processes can hold.
std::shared_ptr<HostBackend> process_backend(int64_t world,
                                             int64_t ranks_per_process,
                                             std::unique_ptr<Transport>);

}  // namespace dtensor
