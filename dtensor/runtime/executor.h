// Carrying out plans on local parts.
//
// What a plan needs of a rank (schedules, groups, sizes) is put together once
// and kept, bounded, with the rank; what remains of a repeated plan is to
// allocate, and to communicate.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "dtensor/placement/plan.h"
#include "dtensor/runtime/rank_context.h"
#include "dtensor/runtime/tensor.h"

namespace dtensor {

// A plan as one rank carries it out.
class Execution;

// That of tensors which move together, by the rank's planner. Throws Error when
// there is no plan. Kept by the rank; one at a time runs.
std::shared_ptr<Execution> execution(RankContext&, std::span<const Move>);

const Plan& plan_of(const Execution&);

// Each part under its move's source becomes the part under its destination, all
// undefined where this rank is not in the mesh. Collective over the groups of
// the plan's steps; each is recorded as an event per tensor. A plan that only
// slices gives a view. With `consume`, parts whose memory nobody else holds may
// be overwritten.
void execute(RankContext&, Execution&, std::span<Tensor> parts,
             bool consume = false);

}  // namespace dtensor
