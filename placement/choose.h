// Which assignment an operator takes.
//
// For every mesh axis that some input uses, the choice is which factor it
// splits (of those that it splits in some input: an operator does not spread
// work over ranks that nobody asked for), which inputs' partials pass, or
// neither. The price of an assignment, in picoseconds of the cost table, is
//   comm    the redistribution of the inputs, and what the operator itself
//           sends (see OpWork), plus
//   work    the largest rank's share of the local work, plus
//   reduce  what is put off: the reduction of a partial output, and the gather
//           of an output that is split where no input was.
// The cheapest wins; ties go to what sends less now (P + R stays partial: what
// follows may want it reduced into parts), then to fewer steps now, then to the
// first in a fixed order (whole before split, factors in the rule's order). It
// depends on specs and prices alone, so every rank chooses the same.
//
// What lies where it is needed, with nothing to be said for another factor, is
// the cheapest without a search. Else it is found by branch and bound over the
// axes: each input and output costs at least what the cheapest of its layouts
// does that agrees with the axes so far, and of layouts most are only priced
// from below, which takes no search for a plan.
//
// An input that stays (a parameter) is never sent or gathered: assignments that
// would are not candidates. One that is gathered on use is never sent in any
// other way, and its gather is priced as any other.
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

// May an operator move such an input so?
bool allows(Keep, const Plan&);

struct OpInput {
  const Spec* spec;
  Keep keep = Keep::kMove;
};

// What the price of local work depends on.
struct OpWork {
  double flops_per_point = 1;  // 2 for a contraction
  // What compute() sends between ranks that split the factor `over` (0: it
  // sends nothing, or a few numbers, which have no price): `times` all-to-alls
  // of as many elements of the first input's type as the sizes of the factors
  // `of` multiply to, which the ranks are supposed to share evenly. With `of`
  // empty, each rank receives from every other one a sum of 8 bytes for each
  // index of all factors but `over`.
  struct Exchange {
    char over = 0;
    std::string_view of = {};
    int times = 0;
  } exchange = {};
};

struct Choice {
  Assignment assignment;
  std::vector<const Spec*> in, out;
  int64_t comm_ps = 0, work_ps = 0, reduce_ps = 0;
  int steps = 0;         // redistribution steps before the op
  bool feasible = true;  // false: an input that stays would have to move
  int64_t total_ps() const { return comm_ps + work_ps + reduce_ps; }
};

// The inputs, those first that are the last to be moved: those that stay, then
// the largest.
std::vector<size_t> operand_order(std::span<const OpInput>);

// The price and specs of one assignment, made legal.
Choice price(const BoundRule&, std::span<const OpInput>,
             std::span<const DType> out_dtypes, const OpWork&,
             const Assignment&, Planner&);

// The best one. Throws Error when an input that stays would have to move under
// every assignment.
Choice choose(const BoundRule&, std::span<const OpInput>,
              std::span<const DType> out_dtypes, const OpWork&, Planner&,
              std::string_view op);

// Assignments over all axes of the mesh, used by inputs or not, cheapest first,
// the first `limit` of them (0: all): what explain prints.
std::vector<Choice> all_choices(const BoundRule&, std::span<const OpInput>,
                                std::span<const DType> out_dtypes,
                                const OpWork&, Planner&, int limit = 0);

}  // namespace dtensor
