// SPDX-License-Identifier: Apache-2.0
// Functions of which the values decide the result's shape: the places and the
// elements that a mask selects, and distinct elements. Every rank of the mesh
// calls them, and waits for the number of elements, which is 0 in a dry run. If
// the input is split, each rank writes the elements of its own part to their
// places in the result, which is then a partial sum. The input is not gathered.
#pragma once
#include <optional>
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// The indices of the nonzero elements in row-major order, as i64 [count,
// x.ndim()].
DistTensor nonzero(const DistTensor& x);
DistTensor argwhere(const DistTensor& x);
// The columns of nonzero(), one vector for each dimension: in torch also
// nonzero(condition, as_tuple=True). A scalar counts as a vector.
std::vector<DistTensor> where(const DistTensor& condition);

// The elements of x at which the mask (bool) is true, in row-major order, as a
// vector. x and the mask broadcast to one shape.
DistTensor masked_select(const DistTensor& x, const DistTensor& mask);
// Returns x with the first elements of `source`, in row-major order, in the
// places where the mask is true. x and the mask broadcast to one shape. The
// source is looked up as by embedding(). Waits for nothing if it has as many
// elements as that shape. Throws Error if it has too few, or not x's type.
DistTensor masked_scatter(const DistTensor& x, const DistTensor& mask,
                          const DistTensor& source);

struct Unique {
  DistTensor values;
  DistTensor inverse;  // i64: where each element or slice of x is in `values`
  DistTensor counts;   // i64: how often each of the values occurs
};

// The distinct elements of x, smallest first; inverse has x's shape. With a
// dimension, the distinct slices along it, in the order of their elements.
// Every NaN is distinct. The elements are sorted twice; slices of m elements
// are compared in log2(m) more rounds of two sorts. Has no gradient. Throws
// Error if a slice is empty.
Unique unique(const DistTensor& x, std::optional<int> dim = {});
// As unique(), but keeps the order, and drops only repetitions that follow each
// other. Sorts nothing.
Unique unique_consecutive(const DistTensor& x, std::optional<int> dim = {});

}  // namespace dtensor
