// How a partial-fill gives every rank its part: nothing is sent.
#pragma once
#include <optional>

#include "dtensor/placement/mesh.h"
#include "dtensor/placement/plan.h"
#include "dtensor/placement/region.h"

namespace dtensor {

// One rank's part.
struct Fill {
  bool keeps = true;  // the value, or a part of it; else the identity alone
  std::optional<ReduceOp> outside;  // whose identity lies around it
  bool counts = false;              // pairs begin: each value counts once
};
Fill fill_of(const Step&, const Coord& at);

// What a rank that keeps its value gives to a partial-fill: all that it has,
// but of what several have along the axes that split it and become partial
// (whole segments of a concatenation) only the first one gives it.
Region own_part(const Step&, const Coord& at);

// What fills the rest; of a mean both the sum and the count are 0.
double identity_value(ReduceOp);

}  // namespace dtensor
