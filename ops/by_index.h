// SPDX-License-Identifier: Apache-2.0
// Further functions that read, write or reduce elements by index, under torch's
// names. As in embedding.h, each rank handles the indices in its own range of a
// split dimension, indices are i32 or i64, and every rank of the mesh calls
// these functions. They throw Error on every rank if an index does not exist,
// and if shapes or types do not fit.
#pragma once
#include "dtensor/dist_tensor.h"

namespace dtensor {

// Returns the elements of x at the indices, one index tensor for each of the
// first dimensions of x. An undefined one stands for all indices: index(x, {i,
// {}, j}) is x[i, :, j] in torch. The others broadcast to one shape, whose
// dimensions take the place of the indexed ones, or come first if those are not
// neighbours. Negative indices count from the end. x may be split along one of
// the indexed dimensions, and along all others; the result is then a partial
// sum. A mask is not an index here.
DistTensor index(const DistTensor& x, TensorList indices);

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
