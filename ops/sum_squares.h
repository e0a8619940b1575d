// SPDX-License-Identifier: Apache-2.0
// The sum of squares behind norms and variances. Private to ops.
#pragma once
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// sum(square(x), dims, keepdim). Over the last dimensions, or all, of f32 or
// f64 it takes one pass over a contiguous x (another one is copied first) and
// stores no square. Every rank of the mesh calls it.
DistTensor sum_squares(const DistTensor& x, const std::vector<int>& dims,
                       bool keepdim);

}  // namespace dtensor
