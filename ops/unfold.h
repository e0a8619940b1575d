// SPDX-License-Identifier: Apache-2.0
// The windows of an image as columns, and the reverse, as torch.nn.functional
// has them. Each is the gradient of the other. Every rank of the mesh calls
// both.
//
// The batch, the channels and the positions of the windows may be split. If
// space is split, ranks fetch only the elements that their own windows reach.
// If it is split in its last dimension, the result of unfold() and the argument
// of fold() are moved as well, since windows [h, w] become one dimension.
#pragma once
#include <cstdint>

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/per_dimension.h"

namespace dtensor {

// Each list has a number for each of the two dimensions of space, or one for
// both. `padding` are zeros on both sides.
struct UnfoldOptions {
  PerDimension dilation = 1;
  PerDimension padding = 0;
  PerDimension stride = 1;
};

// x [b, c, h, w] or [c, h, w] -> [b, c * taps, windows]: the elements of each
// window of these sizes, where `taps` is the number of elements of a window.
// Floats, i32 and i64. Throws Error if there is no window.
DistTensor unfold(const DistTensor& x, const PerDimension& window,
                  const UnfoldOptions& = {});
// x [b, c * taps, windows] or [c * taps, windows] -> [b, c, size...]: adds each
// element of each window to the element of the image from which unfold() takes
// it. Throws Error if an image of this size has another number of windows.
DistTensor fold(const DistTensor& x, const PerDimension& size,
                const PerDimension& window, const UnfoldOptions& = {});

}  // namespace dtensor
