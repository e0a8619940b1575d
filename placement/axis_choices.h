// SPDX-License-Identifier: Apache-2.0
// The alternatives that choose() compares. Each mesh axis has a list of
// choices: factors to split, or partials to let pass. One choice for each axis
// makes an assignment.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dtensor/placement/bound_rule.h"
#include "dtensor/placement/choose.h"
#include "dtensor/placement/layout.h"
#include "dtensor/placement/mesh.h"

namespace dtensor {

// Which factors an axis may split. Each value also allows the factors of the
// values before it.
enum class Reach : uint8_t {
  // The factors of the dimensions that the axis splits in some input, and those
  // with which these are linked. If the axis splits a pinned factor, any
  // factor: that input has to move anyway.
  kMoved,
  // The factors of an input that is partial over the axis and must be reduced,
  // because no note of the rule (rule.h) lets the partial pass. Factors marked
  // "~" are left out: the operator's messages for them may have no price.
  kReduced,
  kAll  // any factor, even if no input uses the axis
};

// The role of one mesh axis in an assignment: it splits factors, lets the
// partials of the inputs of one note (Rule::notes()) pass, or does neither.
struct AxisChoice {
  FactorList factors;            // the factors that the axis splits
  int note = -1;                 // index of that note; -1: no partials pass
  ReduceOp op = ReduceOp::kSum;  // the reduction of these partials
  Reach reach = Reach::kMoved;   // the first value that allows this choice
};

// The choices by axis. Among equally good choices, the earlier one wins. An
// axis over which no input is split or partial has only the empty choice,
// unless the reach is kAll.
std::vector<std::vector<AxisChoice>> axis_choices(const BoundRule&,
                                                  std::span<const OpInput>,
                                                  Reach);

// The Dims that an operator's factors get, derived from its inputs; each is
// computed once. REQUIRES: the rule and the inputs outlive this object.
class FactorDims {
 public:
  FactorDims(const BoundRule&, std::span<const OpInput>);
  // The factor's Dim over exactly the axes of `mask`, made legal (see
  // BoundRule::legal). It is the factor's Dim in the first input, in
  // operand_order(), that splits the factor over exactly these axes. If no
  // input does, its leading axes come from the first input whose split of the
  // factor begins with axes of `mask`; the other axes follow in mesh order. (If
  // `mask` leaves a tree without some of its axes, that input is passed over.)
  const Dim& operator()(int factor, AxisMask mask) {
    return of(factor, mask).dim;
  }
  // The largest rank's share of the factor's indices (see BoundRule::share).
  double share(int factor, AxisMask mask) { return of(factor, mask).share; }

 private:
  struct Known {
    AxisMask axes;
    Dim dim;
    double share;
  };
  const Known& of(int factor, AxisMask);
  Dim make(int factor, AxisMask) const;
  const BoundRule& rule_;
  std::span<const OpInput> inputs_;
  std::vector<size_t> order_;
  std::vector<std::vector<Known>> known_;  // by factor
};

// Fills `a` with the assignment in which axis i takes picked[i]. dim_of(factor,
// axes) returns the Dim of a factor that exactly these axes split.
template <class DimOf>
void assemble(const BoundRule& rule,
              const std::vector<const AxisChoice*>& picked, DimOf&& dim_of,
              Assignment& a) {
  a.dims.clear();
  a.passes.clear();
  for (size_t axis = 0; axis < picked.size(); ++axis)
    if (picked[axis]->note >= 0)
      a.passes.push_back(
          {static_cast<int>(axis), picked[axis]->note, picked[axis]->op});
  const int factors = static_cast<int>(rule.rule().factors().size());
  a.dims.reserve(static_cast<size_t>(factors));
  for (int f = 0; f < factors; ++f) {
    AxisMask mask = 0;
    for (size_t axis = 0; axis < picked.size(); ++axis)
      if (contains(picked[axis]->factors, f)) mask |= AxisMask{1} << axis;
    a.dims.push_back(dim_of(f, mask));
  }
}

}  // namespace dtensor
