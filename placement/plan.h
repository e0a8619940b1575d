// SPDX-License-Identifier: Apache-2.0
// Plans the steps that turn one layout of a tensor into another.
//
// A plan is a pure function of the specs and the prices: all ranks make the
// same one, whatever was planned before. plan() searches sequences of slices,
// all-gathers, all-reduces, reduce-scatters, all-to-alls, permutes,
// partial-fills and box exchanges. One collective may be over several axes.
// plan() returns the cheapest sequence under the cost table that fits into
// memory (see CostTable::block_bytes). But it searches fewer layouts on meshes
// of more than four axes, of four axes and more than 256 ranks, or of three
// axes and more than 1,024 ranks, for tensors of more than four dimensions on
// four axes, and for dimensions with trees, listed boundaries or two granules.
// There, intermediate layouts cut a dimension only as the source or the
// destination does, or without the last axes of that cut. (Axes of size 1 do
// not count.)
//
// Every step between two layouts with the same partials sends each rank exactly
// what it needs and does not have. If these transfers are an all-gather, an
// all-to-all or a permute, the step is called and priced as one. Likewise, a
// step that combines partials sends each rank exactly the summands that it
// needs. So the direct step meets the lower bound, and more steps only pay if
// axes or kinds of steps differ in price, if partials are cheaper to combine in
// another order, or if memory is short.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/placement/cost.h"
#include "dtensor/placement/spec.h"
#include "dtensor/placement/step_kind.h"

namespace dtensor {

// A tensor's change from one layout to another.
struct Move {
  SpecRef from, to;
  bool operator==(const Move&) const = default;
};

// The move of the parts alone. If an end of `m` is partial by
// ReduceOp::kExactSum, both become of type exact, with P(sum) for P(exact);
// execute() rounds.
Move of_parts(const Move& m);

struct Step {
  StepKind kind;
  // The group of the step: ranks that differ only in these axes. 0 without
  // communication, and between two meshes, where all ranks of both form the
  // group.
  AxisMask axes;
  SpecRef from, to;
  ReduceOp op = ReduceOp::kSum;  // of a reduction
  // The most bytes that one rank receives. An all-reduce that is not one-shot
  // counts as the reduce-scatter and the all-gather that it equals.
  int64_t bytes = 0;
  int tensor = 0;  // index among the tensors that move together
  // Steps of the same round are one collective (of several tensors). They have
  // the same kind and axes.
  int round = 0;
};

struct Plan {
  std::vector<Step> steps;  // by round, then by tensor
  int64_t bytes = 0;        // the sum of the steps' bytes
  int64_t time_ps = 0;      // under the cost table
  // The most bytes that one rank holds: source, destination and the memory in
  // between.
  int64_t peak_bytes = 0;
  // The plan runs this many times, each time on one part of the tensor, so that
  // the memory in between fits into a block. Alphas are paid each time.
  int64_t chunks = 1;
  bool has_collective = false;  // even if it moves no bytes
  bool communicates() const { return bytes > 0 || has_collective; }
};

// Plans one tensor. Between two meshes, partials are combined on the first
// mesh, one box exchange moves everything that is not there yet, and the
// destination's partials are filled on the second mesh. Throws Error if there
// is no way, or if the specs differ in more than layout and mesh. The steps are
// those of of_parts(), here and below.
Plan plan(const Spec* from, const Spec* to, const CostTable&);

// The result of planning without a search.
struct QuickPlan {
  // nullopt if only a search finds the plan, and always between two meshes.
  std::optional<Plan> plan;
  int64_t least_ps = 0;  // a lower bound of the time of any plan
};
QuickPlan quick_plan(const Spec* from, const Spec* to, const CostTable&);

// Plans tensors that move together: if the next steps of several tensors have
// the same kind and axes, they become one collective. Either every tensor takes
// the steps that are cheapest for it alone, or every tensor takes those that
// are cheapest if it pays only its share of the latencies, whichever makes the
// total cheaper. Each tensor has its share of the block for memory in between.
// Nothing runs in chunks, unless there is only one tensor.
Plan plan(std::span<const Move>, const CostTable&);

// Whether all-gathers and steps that send nothing can lead from the plan's
// source to its destination. (The plan itself may have cheaper other steps.)
bool only_gathers(const Plan&);

// The most bytes that one rank needs under `to` and does not have under `from`.
// No sequence of steps moves fewer. nullopt if either spec has a partial.
std::optional<int64_t> lower_bound_bytes(const Spec* from, const Spec* to);

// Whether an all-reduce of the tensor is one-shot (CostTable::one_shot_bytes).
// All ranks get the same answer, whatever the sizes of their parts.
bool one_shot(const Spec* from, const CostTable&);

// "all-reduce on tp: f32[8](P) -> f32[8](R), 32 bytes", if tp has two ranks.
std::string to_string(const Step&);

}  // namespace dtensor
