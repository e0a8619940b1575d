// SPDX-License-Identifier: Apache-2.0
// Chooses the assignment that an operator computes under.
//
// An axis over which some input is split or partial may split one factor (or a
// linked pair), let the partials of some inputs pass, or do neither. It may
// split a factor of a dimension that it splits in some input, and one to which
// that factor is linked. If it splits a pinned factor, it may split any that is
// not pinned. So an operator does not spread work over an axis that splits no
// input. (See Reach in axis_choices.h. The comment on choose() names an
// exception for partial inputs.) The price of an assignment, in picoseconds of
// the cost table, is the sum of
//   comm    the redistribution of the inputs, and the operator's own
//           messages (see OpWork)
//   work    the local work of the rank that has the most
//   reduce  the work that is put off: the reduction of a partial output, and
//           the gather of an output along axes that split neither the same
//           factors nor linked ones in an input
// The cheapest assignment wins. Ties go to the lowest comm price (so the sum of
// a partial and a replicated tensor stays partial, since the next operator may
// want it reduced into parts), then to the fewest steps of redistribution, then
// to the first in a fixed order (whole before split, factors in the rule's
// order). Only facts that all ranks share count, so all make the same choice.
//
// Nothing is searched if no axis could split another factor, no input is
// partial, every input lies where it is needed, and the operator sends nothing
// and puts nothing off: then moving nothing is the cheapest. Otherwise branch
// and bound over the axes finds the cheapest. The bound is the least work plus,
// for each input and output, the price of the cheapest layout that agrees with
// the choices for the first axes. For most layouts, a lower bound of the price
// is enough, which needs no search.
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

// The operator's side of the price: its local work, and the messages that it
// sends itself.
struct OpWork {
  double flops_per_point = 1;  // 2 for a contraction
  // The messages that Op::compute() sends between the ranks that split factor
  // `over`: `times` all-to-alls. `over` is 0 if it sends nothing, or only a few
  // numbers, which have no price here. If `of` names factors ("*": all), each
  // all-to-all moves a tensor of these factors in the first input's type, and
  // each rank sends an equal share of its part to each rank. If `of` is empty,
  // each rank receives 8 bytes (a sum) from every other rank for each
  // combination of its indices of the other factors. In `of`, "." stands for
  // the dimensions of "...".
  //
  // If `in_turn` is not 0, the ranks take turns instead, with `times` messages
  // each. In all turns together, a rank receives this share of the other ranks'
  // parts of the tensor. `also` is a second factor like `over`; the messages
  // between the ranks that split it add to the price.
  //
  // If `added` is not 0, the messages are all-reduces of so many i32 for each
  // combination of a rank's indices of the other factors. times_of(), if set,
  // returns a factor of `times`, for the type of the first input and the size
  // of `over`.
  struct Exchange {
    char over = 0;
    std::string_view of = {};
    int times = 0;
    double in_turn = 0;
    char also = 0;
    int64_t added = 0;
    int64_t (*times_of)(DType, int64_t size) = nullptr;
  } exchange = {};
  // Bit i is set if the operator reads only as many bytes of input i as it
  // writes, as when it looks up rows of a table.
  uint32_t looked_up = 0;

  // How often the bytes of input i, or those of an output, count in the price.
  // The bytes read from a looked-up input count with the outputs.
  double reads(size_t i) const { return looked_up >> i & 1 ? 0 : 1; }
  double writes() const { return looked_up ? 2 : 1; }
};

// How a choice was made.
enum class Basis : uint8_t {
  kPrice,         // it is the cheapest within Reach::kMoved
  kForwardPrice,  // its price decided, and no gradient follows: see choose()
  kGiven,  // the caller gave it; a gradient takes that of its forward operator
  kWay     // it is the cheapest for one of the operator's algorithms, which
           // was chosen first
};

struct Choice {
  Assignment assignment;
  std::vector<SpecRef> in, out;
  int64_t comm_ps = 0, work_ps = 0, reduce_ps = 0;
  int steps = 0;         // redistribution steps before the op
  bool feasible = true;  // false if an input's Keep forbids its move
  // The axes that split factors beyond Reach::kMoved (axis_choices.h). Only
  // choose() and all_choices() below set it.
  AxisMask beyond = 0;
  Basis basis = Basis::kPrice;
  int64_t total_ps() const { return comm_ps + work_ps + reduce_ps; }
};

// The inputs' indices in the order in which operators prefer to leave them in
// place: first those with Keep::kStay, then the others, both from the largest
// to the smallest.
std::vector<size_t> operand_order(std::span<const OpInput>);

// The price and the specs of one assignment, after it is made legal.
Choice price(const BoundRule&, std::span<const OpInput>,
             std::span<const DType> out_dtypes, const OpWork&,
             const Assignment&, Planner&);

// The best assignment. Throws Error if every assignment would move an input in
// a way that its Keep forbids.
//
// If `forward_only` is set, no gradient of the outputs will be taken. Then an
// axis may also split a factor of an input that is partial over it, so that a
// reduce-scatter takes the place of an all-reduce. Such an assignment wins if
// its total price is below the sum of the work and reduce prices of the best
// other one: the saved work has to pay for all that is sent. (docs/layouts.md
// has the reason.)
Choice choose(const BoundRule&, std::span<const OpInput>,
              std::span<const DType> out_dtypes, const OpWork&, Planner&,
              std::string_view op, bool forward_only = false);

// The `limit` cheapest assignments (0: all), the cheapest first. Any axis of
// the mesh may split factors, whether inputs use it or not. The explain program
// prints these.
std::vector<Choice> all_choices(const BoundRule&, std::span<const OpInput>,
                                std::span<const DType> out_dtypes,
                                const OpWork&, Planner&, int limit = 0);

}  // namespace dtensor
