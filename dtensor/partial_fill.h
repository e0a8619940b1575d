// How a partial-fill gives every rank its part: nothing is sent.
#pragma once
#include <vector>

#include "dtensor/placement/mesh.h"
#include "dtensor/placement/plan.h"
#include "dtensor/placement/region.h"

namespace dtensor {

// One rank's part of what a step fills.
struct Fill {
  // What it holds beside the value: identities, of which later ones overwrite
  // earlier ones. The first one is everywhere.
  struct Identity {
    Region where;
    ReduceOp op;
    // Of (sum, count) pairs, the count: as the sum while they are combined as
    // pairs, else that of one value.
    double count = 1;
  };
  std::vector<Identity> identities;
  bool keeps = true;  // the value, where `own` says
  // All that it has, but of what several ranks have (whole segments of a
  // concatenation that an axis splits and becomes partial) only the first one.
  Region own;
};

// Throws Error when an average would not have the whole value on every rank.
Fill fill_of(const Step&, const Coord& at);

// Of a mean: of both the sum and the count.
double identity_value(ReduceOp);

}  // namespace dtensor
