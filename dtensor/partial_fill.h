// SPDX-License-Identifier: Apache-2.0
// How a partial-fill step makes every rank's part of a partial tensor. Nothing
// is sent.
#pragma once
#include <vector>

#include "dtensor/placement/mesh.h"
#include "dtensor/placement/plan.h"
#include "dtensor/placement/region.h"

namespace dtensor {

// One rank's part after the step.
struct Fill {
  // The identities that the part holds where it does not hold the value. Later
  // ones overwrite earlier ones. The first one fills the whole part.
  struct Identity {
    Region where;
    ReduceOp op;
    // The count of a (sum, count) pair: the identity, too, if this reduction
    // combines pairs, else the count of one value.
    double count = 1;
  };
  std::vector<Identity> identities;
  bool keeps = true;  // whether the part holds the value, at the indices `own`
  // The indices that this rank holds. If several ranks hold an index (in whole
  // segments of a concatenation, split by an axis that becomes partial), only
  // the first of them has it here.
  Region own;
};

// The fill of the rank at coordinate `at`. Throws Error if an axis that splits
// the source would become partial by an average or mean.
Fill fill_of(const Step&, const Coord& at);

// The identity of a reduction; for a mean, of both the sum and the count.
double identity_value(ReduceOp);

}  // namespace dtensor
