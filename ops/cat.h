// Tensors put together. Nothing is sent where the layouts agree but for the
// dimension along which they are put together: of that one every rank holds
// its parts of all of them, end to end.
#pragma once
#include <vector>

#include "dtensor/ops/op.h"

namespace dtensor {

// End to end along a dimension. Sizes may differ there alone. Where other
// dimensions lie differently they are moved, as cheaply as the prices say.
// A vector of no elements fits everything, as in torch.
DistTensor cat(const std::vector<DistTensor>&, int dim = 0);
// Of equal shapes, along a new dimension at `dim`.
DistTensor stack(const std::vector<DistTensor>&, int dim = 0);

// For the list of operators.
std::vector<const Op*> cat_ops();

}  // namespace dtensor
