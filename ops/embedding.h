// SPDX-License-Identifier: Apache-2.0
// Rows and elements by index. If the indexed dimension is split, every rank
// handles the indices in its own range. The result of a look-up (embedding(),
// index_select(), gather()) is then a partial sum, and x is not gathered. The
// gradients go to the rows or elements that were read. Every rank of the mesh
// calls these functions. Unless `zeros_outside` is set, they throw Error on
// every rank if an index does not exist; if the indices are split, the ranks
// exchange 16 bytes to find out (id_range.h). Indices are i32 or i64.
#pragma once

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/indices.h"
#include "dtensor/ops/pointwise.h"

namespace dtensor {

struct EmbeddingOptions {
  // Ids outside of the table give zeros and no gradient, instead of an Error.
  bool zeros_outside = false;
};

// Returns the rows of the table [v, h] that `ids` [...] selects, as [..., h].
DistTensor embedding(const DistTensor& table, const DistTensor& ids,
                     const EmbeddingOptions& = {});

// The spec of a gradient of n rows of a table: that of the table's gradient,
// but every rank has all n rows.
const Spec* rows_spec(const DistTensor& table, int64_t n);

// Returns the slices of x along `dim` at these indices: a vector, or a scalar.
DistTensor index_select(const DistTensor& x, int dim, const DistTensor& index);
// Returns x with alpha times slice i of src added to slice index[i] of x, along
// `dim`. src has x's type, and x's shape except in `dim`. Bools are combined by
// "or" instead of added.
DistTensor index_add(const DistTensor& x, int dim, const DistTensor& index,
                     const DistTensor& src, Number alpha = 1);

// Returns x with values at the elements that index(x, indices) selects
// (by_index.h). The values have x's type, and broadcast to the shape of these
// elements. With `accumulate`, they are added. Otherwise, if indices are equal,
// the last ones win, in every layout, and they alone have a gradient. Bools are
// combined by "or" instead of added.
//
// If the only index is a mask, and the values do not depend on the element that
// it selects, this is where(mask, values, x).
DistTensor index_put(const DistTensor& x, const IndexList& indices,
                     const DistTensor& values, bool accumulate = false);
DistTensor index_put(const DistTensor& x, const IndexList& indices,
                     Number value, bool accumulate = false);
// Sets x to index_put() of it, in place: x[indices] = values in torch. Copies
// x, and moves the result to x's layout. Throws Error if x or the values
// require a gradient outside of NoGrad.
const DistTensor& index_put_(const DistTensor& x, const IndexList& indices,
                             const DistTensor& values, bool accumulate = false);
const DistTensor& index_put_(const DistTensor& x, const IndexList& indices,
                             Number value, bool accumulate = false);

// In the three functions below, the index tensor has as many dimensions as x.
// Its sizes are at most those of x, except in `dim`, and at most those of src,
// which has x's type.
//
// gather() gives y[i, j] = x[index[i, j], j] for dim = 0; y has index's shape.
// As in torch, an empty index may have any type and any number of dimensions.
DistTensor gather(const DistTensor& x, int dim, const DistTensor& index);
// Returns x with src[i, j] added to x[index[i, j], j]. Bools are combined by
// "or" instead of added.
DistTensor scatter_add(const DistTensor& x, int dim, const DistTensor& index,
                       const DistTensor& src);
// Returns x with src[i, j], or the number, at x[index[i, j], j]. If indices are
// equal, the last one along `dim` wins, in every layout, and it alone has a
// gradient.
DistTensor scatter(const DistTensor& x, int dim, const DistTensor& index,
                   const DistTensor& src);
DistTensor scatter(const DistTensor& x, int dim, const DistTensor& index,
                   Number);

}  // namespace dtensor
