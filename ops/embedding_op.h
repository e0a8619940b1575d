// SPDX-License-Identifier: Apache-2.0
// The operators of index_select() and index_add(), for indices of any shape.
// Each is the gradient of the other. Private to ops.
#pragma once
#include <string_view>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// Returns the slices of x along `dim` at these indices, whose dimensions take
// the place of `dim`. An index that does not exist is an Error if `checked`,
// and else gives zeros.
DistTensor take_slices(const DistTensor& x, int dim, const DistTensor& index,
                       bool checked);
// The reverse of take_slices(), for an x with n slices: slice i of the result
// is the sum of the slices of dy with index i. Indices that do not exist are
// left out unless `checked`.
DistTensor put_slices(const DistTensor& dy, int dim, const DistTensor& index,
                      int64_t n, bool checked);

// Whether bag_sums() takes a table of this type.
inline bool has_bags(DType t) { return t == DType::kF32 || t == DType::kF64; }
// Returns the sums of the rows of the table [v, h] that each row of the ids
// [bags, k] names, as [bags, h]. It stores no rows.
DistTensor bag_sums(const DistTensor& table, const DistTensor& ids);

// Throws Error unless the indices are a vector, or a scalar.
void check_vector(std::string_view op, const DistTensor& index);

}  // namespace dtensor
