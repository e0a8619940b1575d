// Carrying out plans on local parts.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "dtensor/comm/communicator.h"
#include "dtensor/execution.h"
#include "dtensor/placement/schedule.h"
#include "dtensor/tensor.h"

namespace dtensor {

// Each part under its move's source becomes the part under its destination, all
// undefined where this rank is not in the mesh. Collective over the groups of
// the plan's steps; each is recorded as an event per tensor. A plan that only
// slices gives a view. With `consume`, parts whose memory nobody else holds may
// be overwritten.
void execute(RankContext&, const Execution&, std::span<Tensor> parts,
             bool consume = false);

// What a tensor's part would be gathered from, where it lies; empty unless its
// plan is one gather, together with whatever moves with it, and this rank can
// read the others' memory.
std::vector<SourceBox> boxes_in_place(RankContext&, const Execution&,
                                      size_t tensor);
// The same as execute() for the other ranks and tensors, but parts[which] is
// left undefined: when the others are there, read() is called with what each
// member gives for it, which stays as it is until that returns.
void execute_in_place(RankContext&, const Execution&, std::span<Tensor> parts,
                      size_t which, const Communicator::ReadSources& read);

}  // namespace dtensor
