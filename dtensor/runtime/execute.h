// Carrying out plans on local parts.
#pragma once
#include <span>

#include "dtensor/runtime/execution.h"
#include "dtensor/runtime/tensor.h"

namespace dtensor {

// Each part under its move's source becomes the part under its destination, all
// undefined where this rank is not in the mesh. Collective over the groups of
// the plan's steps; each is recorded as an event per tensor. A plan that only
// slices gives a view. With `consume`, parts whose memory nobody else holds may
// be overwritten.
void execute(RankContext&, const Execution&, std::span<Tensor> parts,
             bool consume = false);

}  // namespace dtensor
