// SPDX-License-Identifier: Apache-2.0
// Chooses the assignment that an operator computes under.
//
// For every mesh axis that some input uses, the axis may split one factor, let
// the partials of some inputs pass, or do neither. An operator does not spread
// work over ranks that nobody asked for: the factor is one that the axis splits
// in some input, or, if the axis splits a pinned factor, any. (Reach, in
// axis_choices.h; choose() says when a partial input is asking too.)
// The price of an assignment, in picoseconds of the cost table, is the sum of
//   comm    the redistribution of the inputs, and the operator's own
//           messages (see OpWork)
//   work    the largest rank's share of the local work
//   reduce  the work that is put off: the reduction of a partial output, and
//           the gather of an output along an axis that split no input
// The cheapest assignment wins. Ties go to the one that sends less now (P + R
// stays partial, since the next operator may want it reduced into parts), then
// to fewer steps now, then to the first in a fixed order (whole before split,
// factors in the rule's order). The choice depends on specs and prices alone,
// so every rank makes the same one.
//
// If every input already lies where it is needed, and no other factor could be
// split, that is the cheapest assignment and nothing is searched. Otherwise
// branch and bound over the axes finds it. Its bound adds up, for each input
// and output, the cheapest layout that agrees with the axes chosen so far. Most
// layouts only get a lower bound of their price, which needs no search for a
// plan.
//
// An input that stays (a parameter) is never sent or gathered: assignments that
// would do so are not candidates. An input that is gathered on use may be
// gathered, at the usual price, but not sent in any other way.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "dtensor/placement/bound_rule.h"
#include "dtensor/placement/keep.h"
#include "dtensor/placement/plan.h"
#include "dtensor/placement/planner.h"
#include "dtensor/placement/spec.h"

namespace dtensor {

// Whether an operator may move an input with this Keep by this plan.
bool allows(Keep, const Plan&);

struct OpInput {
  const Spec* spec;
  Keep keep = Keep::kMove;
};

// The operator's side of the price: its local work, and what it sends itself.
struct OpWork {
  double flops_per_point = 1;  // 2 for a contraction
  // The messages of compute() between ranks that split the factor `over` (0 if
  // it sends nothing, or a few numbers, which cost nothing here): `times`
  // all-to-alls. Each moves as many elements, of the first input's type, as the
  // product of the sizes of the factors `of` (all for "*"), assumed to be
  // shared evenly by the ranks. If `of` is empty, each rank instead receives
  // from every other one a sum of 8 bytes for each index of all factors but
  // `over`.
  struct Exchange {
    char over = 0;
    std::string_view of = {};
    int times = 0;
  } exchange = {};
  // Bit i is set if only as many bytes of input i are read as are written, like
  // the rows of a table that are looked up.
  uint32_t looked_up = 0;

  // How often the bytes of input i, and those of an output, are read or
  // written.
  double reads(size_t i) const { return looked_up >> i & 1 ? 0 : 1; }
  double writes() const { return looked_up ? 2 : 1; }
};

// How a choice was made.
enum class Basis : uint8_t {
  kPrice,         // it is the cheapest
  kForwardPrice,  // it is the cheapest, and no gradient follows: see choose()
  kGiven,  // it was not chosen: a gradient is computed where its forward was
  kWay     // it is the cheapest for the one of several algorithms that was
           // chosen before
};

struct Choice {
  Assignment assignment;
  std::vector<SpecRef> in, out;
  int64_t comm_ps = 0, work_ps = 0, reduce_ps = 0;
  int steps = 0;         // redistribution steps before the op
  bool feasible = true;  // false if an input moves that may not
  // The axes that split factors beyond Reach::kMoved. Known if choose() or
  // all_choices() made the choice.
  AxisMask beyond = 0;
  Basis basis = Basis::kPrice;
  int64_t total_ps() const { return comm_ps + work_ps + reduce_ps; }
};

// The inputs' indices in the order in which they keep their place: first those
// that stay, then the others from the largest to the smallest.
std::vector<size_t> operand_order(std::span<const OpInput>);

// The price and the specs of one assignment, after it is made legal.
Choice price(const BoundRule&, std::span<const OpInput>,
             std::span<const DType> out_dtypes, const OpWork&,
             const Assignment&, Planner&);

// The best assignment. Throws Error if every assignment would move an input
// that has to stay.
//
// If `forward_only`, no gradient of the outputs will be taken. Then an axis may
// also split a factor of an input that is partial over it, so that a
// reduce-scatter takes the place of an all-reduce, if this costs less in all
// than the best assignment without it costs after its moves: the work that is
// saved has to pay for all that is sent. (docs/layouts.md has the reason.)
Choice choose(const BoundRule&, std::span<const OpInput>,
              std::span<const DType> out_dtypes, const OpWork&, Planner&,
              std::string_view op, bool forward_only = false);

// The first `limit` assignments (0: all), the cheapest first, over all axes of
// the mesh, whether inputs use them or not. The explain program prints these.
std::vector<Choice> all_choices(const BoundRule&, std::span<const OpInput>,
                                std::span<const DType> out_dtypes,
                                const OpWork&, Planner&, int limit = 0);

}  // namespace dtensor
