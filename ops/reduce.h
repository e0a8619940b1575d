// Reductions other than the sum (contraction.h), and running sums.
#pragma once
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// The largest / smallest value over the dimensions (all if empty), which are
// removed unless keepdim. Equal extreme values share the gradient evenly.
// Throws Error if one of them is empty. Every rank of the mesh calls it.
DistTensor amax(const DistTensor&, std::vector<int> dims = {},
                bool keepdim = false);
DistTensor amin(const DistTensor&, std::vector<int> dims = {},
                bool keepdim = false);

// Running sums along one dimension: y[i] = x[0] + ... + x[i]. Integers and
// bools give i64. Floats are summed in f64 and keep their dtype.
DistTensor cumsum(const DistTensor&, int dim);

}  // namespace dtensor
