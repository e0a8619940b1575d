// SPDX-License-Identifier: Apache-2.0
// Vectors as operands of element-wise functions. Private to ops.
#pragma once
#include <vector>

#include "dtensor/ops/view.h"

namespace dtensor {

// The numbers of a list, as a vector that every rank holds whole.
template <class T>
DistTensor vector_of(const std::vector<T>& list, const Mesh& mesh) {
  return DistTensor::from_global(Tensor::from({std::ssize(list)}, list.data()),
                                 mesh, {});
}
// A vector as a tensor with `ndim` dimensions, of which d is the vector's. A
// tensor without dimensions counts as a vector.
inline DistTensor along_dim(const DistTensor& x, int ndim, int d) {
  Shape shape = Shape::filled(ndim, 1);
  shape[d] = numel(x.shape());
  return reshape(x, shape);
}

}  // namespace dtensor
