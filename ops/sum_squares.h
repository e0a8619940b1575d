// SPDX-License-Identifier: Apache-2.0
// The sum of squares behind norms and variances. Private to ops.
#pragma once
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// Computes sum(square(x), dims, keepdim). If the last dimension is one of
// `dims` and x is f32 or f64, it stores no square, and reads x once (after a
// copy if x is not contiguous), except in a reproducible run. Every rank of the
// mesh calls it. REQUIRES: x has a float type.
DistTensor sum_squares(const DistTensor& x, const std::vector<int>& dims,
                       bool keepdim);

}  // namespace dtensor
