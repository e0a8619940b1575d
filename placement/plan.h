// The steps that turn one layout of a tensor into another.
//
// A pure function of the specs and the prices: equal on all ranks, independent
// of what was planned before. It searches sequences of slices, all-gathers,
// all-reduces, reduce-scatters, all-to-alls, permutes, partial-fills, each over
// one or several axes as one collective, and the box exchange, and returns the
// cheapest under the cost table whose memory fits. (On meshes of more than four
// axes, of four and 256 ranks, or of three and 1,024 ranks, the dimensions of
// layouts on the way are cut as the source's or the destination's, or over the
// first of their axes.)
//
// Every step between two layouts with the same partials is one exchange of
// exactly what each rank needs and does not have; an all-gather, an all-to-all
// and a permute are what it is called, and priced as, when it is that. Likewise
// a step that combines partials sends each rank exactly the summands that it
// needs. So the direct step meets the lower bound, and more steps are taken
// when axes differ in price or partials are combined in a cheaper order.
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

// One tensor that changes its layout.
struct Move {
  const Spec *from, *to;
  bool operator==(const Move&) const = default;
};

struct Step {
  StepKind kind;
  // The group: ranks that differ in these. 0 without communication, and
  // between two meshes, where the ranks of both are the group.
  AxisMask axes;
  const Spec *from, *to;
  ReduceOp op = ReduceOp::kSum;  // of a reduction
  // The most that any one rank receives. An all-reduce counts as the
  // reduce-scatter plus the all-gather that it equals.
  int64_t bytes = 0;
  int tensor = 0;  // which of the tensors that move together
  // Steps of one round are one collective (of several tensors); they have the
  // same kind and axes.
  int round = 0;
};

struct Plan {
  std::vector<Step> steps;  // by round, then by tensor
  int64_t bytes = 0;        // received: the sum over the steps
  int64_t time_ps = 0;      // under the cost table
  // The most that one rank holds: source, destination and what lies between.
  int64_t peak_bytes = 0;
  // Carried out so many times, on one part of the tensor after the other, for
  // what lies between to fit into a block. Alphas are paid each time.
  int64_t chunks = 1;
  bool has_collective = false;  // if only of empty parts
  bool communicates() const { return bytes > 0 || has_collective; }
};

// Between two meshes: partials are combined on the first, one box exchange
// moves everything, partials of the destination are filled on the second.
// Throws Error when there is no way, and for specs that differ in more than
// their layout and mesh.
Plan plan(const Spec* from, const Spec* to, const CostTable&);

// The plan, where no search is needed to find it, and a time that no plan is
// below: its own, if there is one.
struct QuickPlan {
  std::optional<Plan> plan;
  int64_t least_ps = 0;
};
QuickPlan quick_plan(const Spec* from, const Spec* to, const CostTable&);

// For tensors that move together: steps of the same kind over the same axes are
// one collective. The steps of each are the cheapest for it alone or for its
// share of the latencies, whichever makes the whole cheaper. Each has its share
// of the block for what lies between; nothing is carried out in chunks.
Plan plan(std::span<const Move>, const CostTable&);

// The most bytes that one rank needs under `to` and does not have under `from`;
// no sequence of steps moves less. nullopt when a partial is involved.
std::optional<int64_t> lower_bound_bytes(const Spec* from, const Spec* to);

// Is an all-reduce of it one-shot? (On all ranks, whatever their parts.)
bool one_shot(const Spec* from, const CostTable&);

// "all-reduce on tp: f32[8](P) -> f32[8](R), 64 bytes".
std::string to_string(const Step&);

}  // namespace dtensor
