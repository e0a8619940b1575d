// SPDX-License-Identifier: Apache-2.0
// More functions that rearrange or repeat elements, under torch's names. They
// call those of view.h, whose comments say when they send anything. Every rank
// of the mesh calls them. They throw Error if a dimension does not exist.
#pragma once
#include <cstdint>
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// narrow() from a start that is an integer tensor without dimensions. The
// program does not wait for its value. If the dimension is split, the result is
// a partial sum. Throws Error as index_select() does.
DistTensor narrow(const DistTensor& x, int dim, const DistTensor& start,
                  int64_t length);
// All windows of `size` indices of a dimension. Window i begins at index
// i * step, and replaces the dimension's index i; a new dimension at the end
// has the indices within the window. If the dimension is split, ranks get from
// others what their windows lack.
DistTensor unfold(const DistTensor& x, int dim, int64_t size, int64_t step);
// Rotates by 90 degrees, `times` times, from dims[0] towards dims[1].
DistTensor rot90(const DistTensor& x, int64_t times = 1,
                 const std::vector<int>& dims = {0, 1});

// With which elements pad() fills the new indices of a dimension of size n:
enum class PadMode {
  kReflect,    // index -i has element i, and n - 1 + i has n - 1 - i
  kReplicate,  // the first or the last element
  kCircular    // index -i has element n - i, and n + i has i
};
// Pads like pad(x, widths, value). A negative width cuts: in the mode kCircular
// before the dimension is padded, else after it. Throws Error if a width is
// larger than n (in the mode kReflect, n - 1), or if n is 0 and a width is not.
DistTensor pad(const DistTensor& x, const std::vector<int64_t>& widths,
               PadMode);

// A matrix with all choices of one element of each vector, in lexicographic
// order; choice i is row i. One vector is returned unchanged. All vectors but
// the first are gathered.
DistTensor cartesian_prod(TensorList);
// A matrix with all choices of r elements of a vector, in lexicographic order
// of their indices, which increase in each row, or with replacement do not
// decrease.
DistTensor combinations(const DistTensor& x, int64_t r = 2,
                        bool with_replacement = false);

// Turns [..., c * r * r, h, w] into [..., c, h * r, w * r]: r * r channels
// become r * r neighbouring pixels. pixel_unshuffle() is the inverse.
DistTensor pixel_shuffle(const DistTensor& x, int64_t r);
DistTensor pixel_unshuffle(const DistTensor& x, int64_t r);
// Views the channels [b, groups * n, ...] as [groups, n], and transposes them.
DistTensor channel_shuffle(const DistTensor& x, int64_t groups);

}  // namespace dtensor
