// SPDX-License-Identifier: Apache-2.0
// Further functions that read, write or reduce elements by index, under torch's
// names. As in embedding.h, each rank handles the indices in its own range of a
// split dimension, indices are i32 or i64, and every rank of the mesh calls
// these functions. They throw Error on every rank if an index does not exist,
// and if shapes or types do not fit.
#pragma once
#include <cstdint>
#include <optional>

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/indices.h"
#include "dtensor/ops/pointwise.h"

namespace dtensor {

// Returns x[indices] (indices.h). Integers, slices and None select a window as
// select(), slice() and unsqueeze() do, which send nothing (view.h).
//
// Index tensors broadcast to one shape, whose dimensions take the place of the
// indexed ones, or come first if those are not neighbours; as in torch, and not
// in NumPy, an integer beside them is not one of them. Negative indices count
// from the end. x may be split along one of the indexed dimensions, and along
// all others; the result is then a partial sum.
//
// A mask (bool) of some dimensions stands for the indices of its true elements,
// one vector for each of these dimensions. Every rank waits for their number,
// which decides the shape of the result.
DistTensor index(const DistTensor& x, const IndexList& indices);

// How elements with equal indices are combined: kAmax is the largest one, and
// kMean rounds integers down.
enum class IndexReduction : uint8_t { kSum, kProd, kMean, kAmax, kAmin };

// Returns x with x[index[i, j], j] combined with src[i, j], for dim = 0; shapes
// are as in scatter_add(). Without `include_self`, the elements of x that an
// index selects do not take part. If src is split along `dim`, the result is a
// partial sum, product, maximum or minimum. Equal extreme values share the
// gradient evenly. Bools are combined as the integers 0 and 1.
DistTensor scatter_reduce(const DistTensor& x, int dim, const DistTensor& index,
                          const DistTensor& src, IndexReduction by,
                          bool include_self = true);

// Like scatter_reduce(), but a vector of indices selects whole slices of x
// along `dim`, as in index_add().
DistTensor index_reduce(const DistTensor& x, int dim, const DistTensor& index,
                        const DistTensor& src, IndexReduction by,
                        bool include_self = true);

// Returns x with slice i of src in place of slice index[i], along `dim`. src
// has x's type, and x's shape except in `dim`. In this and the next functions,
// negative indices count from the end; if indices are equal, the last one wins.
DistTensor index_copy(const DistTensor& x, int dim, const DistTensor& index,
                      const DistTensor& src);
// Returns x with the value, a number or a tensor without dimensions, in all
// slices that the vector of indices selects along `dim`.
DistTensor index_fill(const DistTensor& x, int dim, const DistTensor& index,
                      const DistTensor& value);
DistTensor index_fill(const DistTensor& x, int dim, const DistTensor& index,
                      Number value);
// Returns the elements of the flat x at these indices, in the indices' shape.
// Moves x if a dimension other than the first is split.
DistTensor take(const DistTensor& x, const DistTensor& indices);
// Returns x with the elements of src at these indices of the flat x, or with
// them added. src has x's type, and as many elements as `index`.
DistTensor put(const DistTensor& x, const DistTensor& index,
               const DistTensor& src, bool accumulate = false);

// gather() after x and the indices have been broadcast to each other in all
// dimensions but `dim`. Without a dimension, both are flat. Negative indices
// count from the end.
DistTensor take_along_dim(const DistTensor& x, const DistTensor& index,
                          int dim);
DistTensor take_along_dim(const DistTensor& x, const DistTensor& index);

// Returns for each element of x whether it equals one of the elements of
// `among`, as a bool; `invert` negates the result. `among` is sorted, and
// searchsorted() finds each element in it.
DistTensor isin(const DistTensor& x, const DistTensor& among,
                bool invert = false);

enum class BagMode : uint8_t { kSum, kMean, kMax };

struct EmbeddingBagOptions {
  BagMode mode = BagMode::kMean;
  // If defined, the ids are a vector, in which bag i begins at offsets[i], and
  // the first one at 0. Else they are a matrix with a bag in each row.
  DistTensor offsets = {};
  // The last offset is no bag's, but the number of ids.
  bool include_last_offset = false;
  // Factors of the rows, in the ids' shape and the table's type; only for kSum.
  DistTensor per_sample_weights = {};
  // Ids of this row do not count, and have no gradient. Negative: from the end.
  std::optional<int64_t> padding_idx = {};
};

// Returns the sum, mean or maximum of the rows of the table [v, h] that the ids
// of each bag select, as [bags, h]; zeros for an empty bag. The gradient of a
// maximum goes to the first row that has it. The table's gradient is as large
// as the table; used_rows() (data_shapes.h) gives that of the used rows.
DistTensor embedding_bag(const DistTensor& table, const DistTensor& ids,
                         const EmbeddingBagOptions& = {});

}  // namespace dtensor
