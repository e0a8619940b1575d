// SPDX-License-Identifier: Apache-2.0
// Rows and elements by index. If the dimension that is indexed is split, every
// rank answers the indices in its own range: the result is a partial sum, and
// nothing is gathered. The gradients go to the rows or elements that were read.
// Every rank of the mesh calls these functions. Throws Error on every rank if
// an index does not exist; if the indices are split, the ranks exchange 16
// bytes to find out (id_range.h). Indices are i32 or i64.
#pragma once

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/pointwise.h"

namespace dtensor {

struct EmbeddingOptions {
  // Ids outside of the table give zeros and no gradient, instead of an Error.
  bool zeros_outside = false;
};

// The rows `ids` of the table [v, h], as [..., h].
DistTensor embedding(const DistTensor& table, const DistTensor& ids,
                     const EmbeddingOptions& = {});

// The slices of x at these indices (a vector) of one dimension.
DistTensor index_select(const DistTensor& x, int dim, const DistTensor& index);
// x, with alpha times slice i of src added to its slice index[i]. src has x's
// type, and its shape except for `dim`. For bools, the sum is "or".
DistTensor index_add(const DistTensor& x, int dim, const DistTensor& index,
                     const DistTensor& src, Number alpha = 1);

// The three functions below take indices of one dimension with as many
// dimensions as x. Their other sizes are at most x's, and of src's.
//
// y[i, j] = x[index[i, j], j] for dim = 0. y has the shape of the indices.
DistTensor gather(const DistTensor& x, int dim, const DistTensor& index);
// x, with src[i, j] added to x[index[i, j], j]. For bools, the sum is "or".
DistTensor scatter_add(const DistTensor& x, int dim, const DistTensor& index,
                       const DistTensor& src);
// x, with src[i, j], or the number, at x[index[i, j], j]. Of equal indices the
// last one along `dim` wins, in every layout, and it alone gets the gradient.
DistTensor scatter(const DistTensor& x, int dim, const DistTensor& index,
                   const DistTensor& src);
DistTensor scatter(const DistTensor& x, int dim, const DistTensor& index,
                   Number);

}  // namespace dtensor
