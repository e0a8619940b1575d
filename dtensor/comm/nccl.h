// SPDX-License-Identifier: Apache-2.0
// Ranks that each compute on one GPU and communicate through NCCL. They are
// threads of one process or of several, and agree on their calls as the ranks
// of a HostBackend do. The data of tensors never passes through the host.
//
// NCCL's own collectives do all-reduces, and those all-gathers and
// reduce-scatters whose parts are contiguous and of one size. NCCL adds in an
// order of its own, and may round f16 and bf16 after each addition. Other
// transfers, those beyond the first 512 of a call, and the max or min of floats
// (where NCCL drops NaNs), are sent between members, packed if they are not
// contiguous, and reduced in member order.
//
// The members of a group are linked by their first collective that moves data.
// That collective must not be captured into a graph (graph.h), so run a step
// once before it is captured.
#pragma once
#include <cstdint>
#include <memory>

#include "dtensor/comm/nccl/link.h"
#include "dtensor/comm/process_backend.h"

namespace dtensor {

// Returns the row of --backend nccl in the table of DataBackends.
DataBackend nccl_backend();

// The first three arguments are those of Membership's constructor. Without a
// library, the backend uses the real NCCL; if this machine has no GPUs for it,
// throws an Error that says why. The job and the library outlive the backend.
// The timeout also limits how long NCCL may take to accept a call, and how long
// a GPU may take to complete a call once it has begun; after that, the run
// fails with an Error instead of waiting forever.
std::shared_ptr<Backend> nccl_backend(int64_t world, int64_t ranks_per_process,
                                      ProcessJob*, NcclLibrary* = nullptr);

}  // namespace dtensor
