// What choose() chooses between: for each mesh axis, which factor it splits or
// which partials pass on it, and the assignment that such choices make.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "dtensor/placement/bound_rule.h"
#include "dtensor/placement/choose.h"
#include "dtensor/placement/layout.h"
#include "dtensor/placement/mesh.h"

namespace dtensor {

// What one mesh axis does in an assignment.
struct AxisChoice {
  FactorList factors;            // splits these
  int note = -1;                 // or lets this note's inputs pass ...
  ReduceOp op = ReduceOp::kSum;  // ... partial by this
};

// By axis, in the order of ties. Of axes that no input uses, and of factors
// that an axis splits in no input, only when `all`.
std::vector<std::vector<AxisChoice>> axis_choices(const BoundRule&,
                                                  std::span<const OpInput>,
                                                  bool all);

// The Dims that an operator's factors get, from its inputs; each found once.
// REQUIRES: the rule and the inputs outlive it.
class FactorDims {
 public:
  FactorDims(const BoundRule&, std::span<const OpInput>);
  // Over exactly these axes: as an operand has it where one does (one that
  // stays first, then the largest), else that operand's leading axes and the
  // others after them in mesh order.
  // Legal: see BoundRule::legal.
  const Dim& operator()(int factor, AxisMask mask) {
    return of(factor, mask).dim;
  }
  // The largest rank's share of the factor's indices (1 of one that does not
  // count: see BoundRule::largest_share).
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

// The assignment of a choice per axis; dim_of(factor, axes) is the Dim of a
// factor that exactly these axes split.
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
