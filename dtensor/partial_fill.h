// SPDX-License-Identifier: Apache-2.0
// How a partial-fill step (StepKind::kFill) makes every rank's part of a
// partial tensor. The step sends nothing.
#pragma once
#include <vector>

#include "dtensor/placement/mesh.h"
#include "dtensor/placement/plan.h"
#include "dtensor/placement/region.h"

namespace dtensor {

// One rank's part after the step.
struct Fill {
  // The identities that the part holds where it does not hold the value. Where
  // two of them overlap, the later one counts. The first fills the whole part.
  struct Identity {
    Region where;
    ReduceOp op;
    // The count, if the part has (sum, count) pairs: identity_value(op) if this
    // reduction combines pairs, else 1.
    double count = 1;
  };
  std::vector<Identity> identities;
  bool keeps = true;  // whether the part holds the value, at the indices `own`
  // The indices at which this rank's part holds the value. Along an axis that
  // splits the source and becomes partial, several ranks may hold the same
  // segment of a concatenation. Then only the first of them has its indices in
  // `own`, since a sum would count them several times.
  Region own;
};

// The fill of the rank at coordinate `at`. Throws Error if an axis that splits
// the source would become partial by an average or mean.
Fill fill_of(const Step&, const Coord& at);

// The identity of a reduction. For a mean, it is 0: the identity of both the
// sum and the count.
double identity_value(ReduceOp);

}  // namespace dtensor
