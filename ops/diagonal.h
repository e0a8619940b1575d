// SPDX-License-Identifier: Apache-2.0
// Diagonals of matrices, under torch's names.
//
// The diagonal with the offset k has the elements in row i and column i + k.
// Every rank of the mesh calls these functions. They throw Error if a dimension
// does not exist, or if dim1 and dim2 are the same.
//
// If the columns of a matrix are split, each rank takes the elements in its own
// columns, and the diagonal is a partial sum; the matrix is not gathered. If
// the rows are split, so is the diagonal.
#pragma once
#include <cstdint>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// The diagonal of the matrices with rows along dim1 and columns along dim2.
// Removes both dimensions, and adds that of the diagonal at the end.
DistTensor diagonal(const DistTensor& x, int64_t offset = 0, int dim1 = 0,
                    int dim2 = 1);
// Square matrices with the rows of x [..., n] on this diagonal and zeros
// elsewhere. dim1 and dim2 are dimensions of the result.
DistTensor diag_embed(const DistTensor& x, int64_t offset = 0, int dim1 = -2,
                      int dim2 = -1);
// diagonal() of a matrix, or diag_embed() of a vector.
DistTensor diag(const DistTensor& x, int64_t offset = 0);
// diag_embed() of all elements.
DistTensor diagflat(const DistTensor& x, int64_t offset = 0);
// Returns x with `src` in the place of diagonal(x, offset, dim1, dim2). `src`
// has the shape of that diagonal, and x's type. Only `src` may move.
DistTensor diagonal_scatter(const DistTensor& x, const DistTensor& src,
                            int64_t offset = 0, int dim1 = 0, int dim2 = 1);

// A matrix with these matrices one below the other, each to the right of those
// above, and zeros elsewhere. A vector counts as one row, and a scalar as
// [1, 1]. Types are promoted to one. Throws Error for more than two dimensions.
DistTensor block_diag(TensorList);

}  // namespace dtensor
