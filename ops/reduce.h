// Reductions other than the sum (contraction.h), and running sums.
#pragma once
#include <vector>

#include "dtensor/ops/op.h"

namespace dtensor {

// The largest / smallest value over the dimensions (all when empty). Where
// several are equal, the gradient is shared between them evenly.
DistTensor amax(const DistTensor&, std::vector<int> dims = {},
                bool keepdim = false);
DistTensor amin(const DistTensor&, std::vector<int> dims = {},
                bool keepdim = false);

// Running sums along one dimension: y[i] = x[0] + ... + x[i]. Integers and
// bools sum up in i64, and floats in f64, to their own type.
DistTensor cumsum(const DistTensor&, int dim);

// For the list of operators.
std::vector<const Op*> reduce_ops();

}  // namespace dtensor
