// SPDX-License-Identifier: Apache-2.0
// Pools, as torch.nn.functional has them. Every rank of the mesh calls these
// functions. As for convolutions (convolution.h), the batch, the channels and
// the positions of space may be split, and only the elements that a neighbour's
// windows reach are sent.
#pragma once
#include <cstdint>
#include <utility>

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/per_dimension.h"

namespace dtensor {

// Each list has a number for each dimension of space, or one for all of them.
// An option that the function does not have is an Error.
struct PoolOptions {
  PerDimension stride = {};   // by default the sizes of the windows
  PerDimension padding = 0;   // on both sides; at most half a window
  PerDimension dilation = 1;  // for max_pool only
  // Rounds the number of windows up instead of down, if the last one begins in
  // x or in the padding before it.
  bool ceil_mode = false;
  // For avg_pool only. Whether padding counts, and, unless it is 0, the divisor
  // of the sums instead of the number of elements.
  bool count_include_pad = true;
  int64_t divisor_override = 0;
};

// x [b, c, space...] or [c, space...] -> the largest element of each window of
// these sizes, [b, c, out...], where out = (space + 2 * padding - dilation *
// (window - 1) - 1) / stride + 1 in each dimension. Padding counts as -inf. The
// gradient goes to the first of equal elements. Floats, i32 and i64.
DistTensor max_pool1d(const DistTensor& x, const PerDimension& window,
                      const PoolOptions& = {});
DistTensor max_pool2d(const DistTensor& x, const PerDimension& window,
                      const PoolOptions& = {});
DistTensor max_pool3d(const DistTensor& x, const PerDimension& window,
                      const PoolOptions& = {});

// The same, and the index in the flat space of x of each element that was taken
// (i64).
std::pair<DistTensor, DistTensor> max_pool1d_with_indices(
    const DistTensor& x, const PerDimension& window, const PoolOptions& = {});
std::pair<DistTensor, DistTensor> max_pool2d_with_indices(
    const DistTensor& x, const PerDimension& window, const PoolOptions& = {});
std::pair<DistTensor, DistTensor> max_pool3d_with_indices(
    const DistTensor& x, const PerDimension& window, const PoolOptions& = {});

// The mean of each window; padding counts as 0. Integers round towards 0.
DistTensor avg_pool1d(const DistTensor& x, const PerDimension& window,
                      const PoolOptions& = {});
DistTensor avg_pool2d(const DistTensor& x, const PerDimension& window,
                      const PoolOptions& = {});
DistTensor avg_pool3d(const DistTensor& x, const PerDimension& window,
                      const PoolOptions& = {});

// ---- Adaptive pools ----
//
// x [b, c, space...] or [c, space...] -> the mean or the largest element of the
// windows m * space / size (rounded down) to (m + 1) * space / size (rounded
// up), for m < size, in each dimension. `size` has a number for each dimension
// of space, or one for all of them; -1 keeps the size of x. Floats only.

// A mean over all of a split dimension is a partial mean.
DistTensor adaptive_avg_pool1d(const DistTensor& x, const PerDimension& size);
DistTensor adaptive_avg_pool2d(const DistTensor& x, const PerDimension& size);
DistTensor adaptive_avg_pool3d(const DistTensor& x, const PerDimension& size);

// The gradient goes to the first of equal elements. The indices are those of
// max_pool1d_with_indices().
DistTensor adaptive_max_pool1d(const DistTensor& x, const PerDimension& size);
DistTensor adaptive_max_pool2d(const DistTensor& x, const PerDimension& size);
DistTensor adaptive_max_pool3d(const DistTensor& x, const PerDimension& size);
std::pair<DistTensor, DistTensor> adaptive_max_pool1d_with_indices(
    const DistTensor& x, const PerDimension& size);
std::pair<DistTensor, DistTensor> adaptive_max_pool2d_with_indices(
    const DistTensor& x, const PerDimension& size);
std::pair<DistTensor, DistTensor> adaptive_max_pool3d_with_indices(
    const DistTensor& x, const PerDimension& size);

}  // namespace dtensor
