// SPDX-License-Identifier: Apache-2.0
// take_in_rows() and put_in_rows(), the operators of gather() and
// scatter_add(). Each is the gradient of the other; the gradients of topk() and
// sort() use put_in_rows(). Private to ops.
#pragma once
#include "dtensor/ops/op.h"

namespace dtensor {

// Returns the elements of x [..., n] at the indices [..., k] (i64) of its last
// dimension, and zeros for indices outside of it. If that dimension is split,
// each rank answers the indices in its range, and the result is a partial sum.
// The rule is "...n,...k->...k", and that of put_in_rows() "...k,...k->...n";
// the assignment, if given, is one of that rule.
DistTensor take_in_rows(const DistTensor& x, const DistTensor& index,
                        const Assignment* = nullptr);
// Returns the sum of weights[t] * take_in_rows(x, index[t]) over t. The rule is
// "...n,t...k,t...k->...k". Weights have x's type, which is a float type.
DistTensor take_weighted(const DistTensor& x, const DistTensor& index,
                         const DistTensor& weights);
// The reverse of take_in_rows(): element i of the result [..., n] is the sum of
// the elements of dy with index i.
DistTensor put_in_rows(const DistTensor& dy, const DistTensor& index, int64_t n,
                       const Assignment* = nullptr);
// The assignment for one of the two in the gradient of the other: their rules
// have the factors n and k in opposite order.
Assignment exchanged(const GradientCall&);

// The output dtypes of an operator that returns ordered elements and their
// indices: t and i64. Throws Error for bools.
std::vector<DType> values_and_indices(std::string_view op, DType);

// The indices of a dimension of size n in i64, with n added to those in [-n,
// 0), which count from the end.
DistTensor from_front(const DistTensor& index, int64_t n);

// Throws Error unless the indices are i32 or i64.
void check_index_type(std::string_view op, const DistTensor& index);

// Exchanges dimension `dim` of x with the last one. A second call undoes it.
DistTensor to_last(const DistTensor& x, int dim);

}  // namespace dtensor
