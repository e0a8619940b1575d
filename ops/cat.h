// Concatenation. Nothing is sent if the layouts agree, apart from the dimension
// to concatenate: along it, every rank keeps its own parts of all tensors, end
// to end.
#pragma once
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// Concatenates along a dimension, in which the sizes may differ. If the layouts
// of other dimensions differ, tensors are moved, at the least cost. An
// empty vector [0] fits everything, as in torch. Every rank of the mesh calls
// it. Throws Error for an empty list, or if shapes or dtypes do not fit.
DistTensor cat(const std::vector<DistTensor>&, int dim = 0);
// Joins tensors of equal shapes along a new dimension at `dim`.
DistTensor stack(const std::vector<DistTensor>&, int dim = 0);

}  // namespace dtensor
