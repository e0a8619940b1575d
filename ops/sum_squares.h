// SPDX-License-Identifier: Apache-2.0
// The sum of squares behind norms and variances. Private to ops.
#pragma once
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// Computes sum(square(x), dims, keepdim). If `dims` are all dimensions or the
// last ones, and x is f32 or f64, it reads x once and stores no square. An x
// that is not contiguous is copied first. Every rank of the mesh calls it.
DistTensor sum_squares(const DistTensor& x, const std::vector<int>& dims,
                       bool keepdim);

}  // namespace dtensor
