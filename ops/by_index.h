// SPDX-License-Identifier: Apache-2.0
// Further functions that read, write or reduce elements by index, under torch's
// names. As in embedding.h, each rank handles the indices in its own range of a
// split dimension, indices are i32 or i64, and every rank of the mesh calls
// these functions. They throw Error on every rank if an index does not exist,
// and if shapes or types do not fit.
#pragma once
#include "dtensor/dist_tensor.h"

namespace dtensor {

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

}  // namespace dtensor
