// Carries out plans on local parts.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "dtensor/comm/communicator.h"
#include "dtensor/execution.h"
#include "dtensor/placement/schedule.h"
#include "dtensor/tensor.h"

namespace dtensor {

// Replaces each part, in the layout of its move's source, by the part in the
// layout of the destination. Parts are undefined on ranks outside the mesh.
// Collective over the groups of the plan's steps. Records one event per
// collective and tensor. A plan that only slices returns a view. With
// `consume`, parts whose memory nobody else holds may be overwritten.
void execute(RankContext&, const Execution&, std::span<Tensor> parts,
             bool consume = false);

// The boxes in other ranks' memory from which a tensor's part would be
// gathered. Empty unless the whole execution is a single all-gather and this
// rank can read the other members' memory.
std::vector<SourceBox> boxes_in_place(RankContext&, const Execution&,
                                      size_t tensor);
// Like execute() for all tensors but number `which`: its part stays undefined.
// Instead, read() is called with every member's source memory for it once the
// other parts are complete. The sources stay valid and unchanged until read()
// returns. REQUIRES: boxes_in_place() is not empty. Collective like execute().
void execute_in_place(RankContext&, const Execution&, std::span<Tensor> parts,
                      size_t which, const Communicator::ReadSources& read);

}  // namespace dtensor
