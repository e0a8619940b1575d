// SPDX-License-Identifier: Apache-2.0
// Functions of the order of elements, under torch's names. Every rank of the
// mesh calls them. Indices are i64. A scalar counts as a row of one element. A
// function along a dimension throws Error if the dimension does not exist or is
// empty.
#pragma once
#include "dtensor/dist_tensor.h"
#include "dtensor/ops/reduce.h"

namespace dtensor {

// The largest / smallest element along a dimension, which is removed unless
// keepdim, and its index: the first one of equal elements, or of NaNs, if there
// are any. Only the element taken has a gradient; amax() shares it between
// equal elements.
TopK max(const DistTensor&, int dim, bool keepdim = false);
TopK min(const DistTensor&, int dim, bool keepdim = false);

}  // namespace dtensor
