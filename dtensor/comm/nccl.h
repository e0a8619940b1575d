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
//
// NCCL copies what it sends through memory of its own, but where it knows the
// operands' memory: on one machine it then reads and writes there, and NVLink's
// switches do, which add up themselves. reserve_for_nccl() takes such memory,
// which every group registers when it is linked. As NCCL's manual has it ("User
// Buffer Registration"), all members' operands of a call have to be there, or
// none: where they are not all, those that are go through a copy. It is not
// done unless it is asked for: NCCL as late as 2.31.2 is reported to hang where
// registered memory is sent between machines (its issue 2389).
#pragma once
#include <cstdint>
#include <memory>

#include "dtensor/comm/host_backend.h"
#include "dtensor/comm/nccl/link.h"

namespace dtensor {

class Reserve;

// Takes so much memory of a GPU (as whole 2 MiB) for what ranks send and
// receive; see device/reserve.h for who is given it, and when. Ranks of a run
// have as much each. Throws Error when NCCL is older than 2.19, or the GPU has
// not so much. The library outlives it.
std::shared_ptr<Reserve> reserve_for_nccl(Device&, int64_t bytes, NcclLibrary&);

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
