// Ranks that compute on a GPU each and send through NCCL. They are threads of
// one process, or of several, and agree on what they call as those do; what is
// sent, never passes through the host.
//
// Even all-gathers and reduce-scatters of contiguous parts, and all-reduces,
// are NCCL's own, which adds up in an order of its own; what is uneven, or the
// largest or smallest of floats, which NCCL finds without the NaNs, goes from
// member to member, packed where it is not contiguous, and is reduced in member
// order.
//
// The members of a group are linked with their first collective that moves
// data, not while that is captured into a graph (graph.h): a step runs once
// before it is.
#pragma once
#include <cstdint>
#include <memory>

#include "dtensor/runtime/comm/host_backend.h"
#include "dtensor/runtime/comm/nccl/link.h"

namespace dtensor {

// Over the ranks of a host backend, that of threads or of processes, which is
// for nobody else from now on. The library outlives the backend. The timeout is
// also how long NCCL may take to accept a call, and a GPU to carry it out once
// it has begun, before the run fails with a sentence instead of waiting for
// ever.
std::shared_ptr<Backend> nccl_backend(std::shared_ptr<HostBackend>,
                                      NcclLibrary&);
// Over that of the machine's GPUs. Throws the Error that says why there are
// none.
std::shared_ptr<Backend> nccl_backend(std::shared_ptr<HostBackend>);
// The same of ranks that are threads of this process.
std::shared_ptr<Backend> nccl_backend(int64_t world, NcclLibrary&);
std::shared_ptr<Backend> nccl_backend(int64_t world);

}  // namespace dtensor
