// Functions that rearrange or repeat elements, under torch's names.
// Each function is a few calls of view.h, slice.h and cat.h, which say when
// they send anything. Every rank of the mesh calls them. All throw Error if a
// tensor is undefined or a dimension does not exist.
#pragma once
#include <utility>
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// Merges dimensions start to end. A tensor without dimensions becomes [1].
DistTensor flatten(const DistTensor&, int start = 0, int end = -1);
// Splits one dimension into several. One of the sizes may be -1.
DistTensor unflatten(const DistTensor&, int dim, const Shape& sizes);
// Moves dimension from[i] to position to[i]; the others keep their order.
DistTensor movedim(const DistTensor&, const std::vector<int>& from,
                   const std::vector<int>& to);
// Transposes a matrix. Vectors and scalars are returned unchanged.
DistTensor transpose(const DistTensor&);
// Adds dimensions of size 1 until there are at least 1, 2 or 3. A vector [n]
// becomes [n], [1, n] or [1, n, 1], and a matrix [m, n] becomes [m, n, 1].
DistTensor atleast_1d(const DistTensor&);
DistTensor atleast_2d(const DistTensor&);
DistTensor atleast_3d(const DistTensor&);

// One tensor for each index of a dimension, which is removed.
std::vector<DistTensor> unbind(const DistTensor&, int dim = 0);
// As numpy.array_split: `sections` pieces, of which the first may be larger by
// one. The other form cuts in front of each of the indices.
std::vector<DistTensor> tensor_split(const DistTensor&, int64_t sections,
                                     int dim = 0);
std::vector<DistTensor> tensor_split(const DistTensor&,
                                     const std::vector<int64_t>& indices,
                                     int dim = 0);

// cat() along dimension 0 (after atleast_2d), 1 (0 for vectors), and 2 (after
// atleast_3d). column_stack() makes vectors columns of a matrix.
DistTensor vstack(const std::vector<DistTensor>&);
DistTensor hstack(const std::vector<DistTensor>&);
DistTensor dstack(const std::vector<DistTensor>&);
DistTensor column_stack(const std::vector<DistTensor>&);

// Expands all tensors to the shape that they broadcast to.
std::vector<DistTensor> broadcast_tensors(const std::vector<DistTensor>&);
// One output per vector, which varies along its own dimension and repeats along
// the others. With `xy`, the first two dimensions are swapped.
std::vector<DistTensor> meshgrid(const std::vector<DistTensor>&,
                                 bool xy = false);

// Repeats the whole tensor times[d] times along dimension d. Dimensions are
// aligned at the right. repeat() needs at least one number per dimension; for
// tile(), missing numbers are 1.
DistTensor repeat(const DistTensor&, const std::vector<int64_t>& times);
DistTensor tile(const DistTensor&, const std::vector<int64_t>& times);
// Moves index i of a dimension to i + shift, wrapping around the end.
DistTensor roll(const DistTensor&, const std::vector<int64_t>& shifts,
                const std::vector<int>& dims);

// Adds `value` around dimensions, the last one first: {left, right, top,
// bottom, ...}. Negative widths cut.
DistTensor pad(const DistTensor&, const std::vector<int64_t>& widths,
               double value = 0);

}  // namespace dtensor
