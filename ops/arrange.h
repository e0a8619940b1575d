// The same elements in another shape, order or number, by torch's names: lines
// of views, slices and cats (view.h, slice.h, cat.h), which say what is sent.
#pragma once
#include <utility>
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// Dimensions start to end as one; of a tensor without dimensions, [1].
DistTensor flatten(const DistTensor&, int start = 0, int end = -1);
// A dimension as several; one size may be -1.
DistTensor unflatten(const DistTensor&, int dim, const Shape& sizes);
// Dimensions from[i] put at to[i], the others in their order.
DistTensor movedim(const DistTensor&, const std::vector<int>& from,
                   const std::vector<int>& to);
// A matrix with rows for columns; vectors and scalars as they are.
DistTensor transpose(const DistTensor&);
// At least so many dimensions, of size 1 where there were none: of a vector
// [n] the third form makes [1, n, 1], of a matrix [m, n, 1].
DistTensor atleast_1d(const DistTensor&);
DistTensor atleast_2d(const DistTensor&);
DistTensor atleast_3d(const DistTensor&);

// The indices of a dimension, which goes away.
std::vector<DistTensor> unbind(const DistTensor&, int dim = 0);
// As numpy.array_split: `sections` pieces, the first ones larger by one; or cut
// ahead of these indices.
std::vector<DistTensor> tensor_split(const DistTensor&, int64_t sections,
                                     int dim = 0);
std::vector<DistTensor> tensor_split(const DistTensor&,
                                     const std::vector<int64_t>& indices,
                                     int dim = 0);

// cat() along the first dimension of at least two, the second (of vectors the
// first), the third of at least three; and of vectors as columns.
DistTensor vstack(const std::vector<DistTensor>&);
DistTensor hstack(const std::vector<DistTensor>&);
DistTensor dstack(const std::vector<DistTensor>&);
DistTensor column_stack(const std::vector<DistTensor>&);

// In the shape that all of them broadcast to.
std::vector<DistTensor> broadcast_tensors(const std::vector<DistTensor>&);
// Vectors along a dimension each, broadcast over the others; with `xy` the
// first two change places.
std::vector<DistTensor> meshgrid(const std::vector<DistTensor>&,
                                 bool xy = false);

// The whole tensor so many times along each dimension; as many or more (tile:
// or fewer) numbers than dimensions, aligned at the right.
DistTensor repeat(const DistTensor&, const std::vector<int64_t>& times);
DistTensor tile(const DistTensor&, const std::vector<int64_t>& times);
// Index i of a dimension goes to i + shift, around the end.
DistTensor roll(const DistTensor&, const std::vector<int64_t>& shifts,
                const std::vector<int>& dims);

// `value` ahead of and behind each dimension, the last one first: {left, right,
// top, bottom, ...}; negative numbers cut.
DistTensor pad(const DistTensor&, const std::vector<int64_t>& widths,
               double value = 0);

}  // namespace dtensor
