// SPDX-License-Identifier: Apache-2.0
// Products, sums that skip NaNs, covariances, and reductions under a mask.
// Every rank of the mesh calls these functions.
#pragma once
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// The product over the dimensions (all if empty), which are removed unless
// keepdim. Products of integers and bools are i64. An empty product is 1. If a
// dimension is split, the result is partial by a product.
DistTensor prod(const DistTensor&, const std::vector<int>& dims = {},
                bool keepdim = false);

}  // namespace dtensor
