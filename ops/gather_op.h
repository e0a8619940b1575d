// SPDX-License-Identifier: Apache-2.0
// The operators of gather() and scatter_add(). Each is the gradient of the
// other, and the gradient of topk() uses both. Private to ops.
#pragma once
#include "dtensor/ops/op.h"

namespace dtensor {

// The elements of x [..., n] at the indices [..., k] (i64) of its last
// dimension. Indices outside of it give zeros. If that dimension is split, each
// rank answers the indices in its range, and the result is a partial sum. The
// assignment, if given, is that of these two rules: "...n,...k->...k" and
// "...k,...k->...n".
DistTensor take(const DistTensor& x, const DistTensor& index,
                const Assignment* = nullptr);
// The reverse: element i of [..., n] is the sum of dy's elements with index i.
DistTensor put(const DistTensor& dy, const DistTensor& index, int64_t n,
               const Assignment* = nullptr);
// The assignment of put() from a call like take(), and vice versa: the factors
// n and k are in reverse order.
Assignment exchanged(const GradientCall&);

// The output types of an operator that gives elements by order, with their
// indices. Throws Error for bools.
std::vector<DType> values_and_indices(std::string_view op, DType);

// x with `dim` as its last dimension, and back: they exchange two dimensions.
DistTensor to_last(const DistTensor& x, int dim);

}  // namespace dtensor
