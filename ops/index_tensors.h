// SPDX-License-Identifier: Apache-2.0
// index() and index_put() with tensors alone, one for each of the first
// dimensions of x; an undefined one stands for all indices. Private to ops.
#pragma once
#include "dtensor/dist_tensor.h"

namespace dtensor {

// REQUIRES: x is defined.
DistTensor index_tensors(const DistTensor& x, TensorList indices);
// REQUIRES: x and the values are defined, and of one type.
DistTensor put_tensors(const DistTensor& x, TensorList indices,
                       const DistTensor& values, bool accumulate);
// Throws Error unless the values broadcast to the shape of the elements that
// the indices select from x.
void check_values(const DistTensor& x, const DistTensor& values,
                  const Shape& selected);

}  // namespace dtensor
