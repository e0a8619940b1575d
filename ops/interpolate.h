// SPDX-License-Identifier: Apache-2.0
// Resizing and sampling images, as torch.nn.functional has them. Every rank of
// the mesh calls these functions. Tensors are floats.
#pragma once
#include <concepts>
#include <cstdint>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/per_dimension.h"

namespace dtensor {

// kLinear stands for torch's "linear", "bilinear" and "trilinear", and kCubic
// for "bicubic".
enum class Interpolation : uint8_t {
  kNearest,
  kNearestExact,  // kNearest, with the centers of elements at halves
  kLinear,
  kCubic,
  kArea  // adaptive_avg_pool()
};

struct InterpolateOptions {
  // Either the sizes of the space of the result, or its sizes divided by those
  // of x. Each list has a number for each dimension of space, or one for all.
  PerDimension size = {};
  std::vector<double> scale_factor = {};
  Interpolation mode = Interpolation::kNearest;
  // For kLinear and kCubic. Whether the centers of the first and last elements
  // of x and of the result coincide, instead of their edges.
  bool align_corners = false;
  // Whether positions follow from the rounded sizes of the result instead of
  // from scale_factor.
  bool recompute_scale_factor = false;
  // For kLinear and kCubic. Whether an element of a smaller result is made of
  // all elements of x that it covers.
  bool antialias = false;
};

// x [b, c, space...], with one to three dimensions of space -> [b, c, size...],
// interpolated in one dimension of space after the other. If a dimension is
// split, each rank fetches the elements that its part of the result needs.
// Throws Error if a size would be 0, or for an option that the mode does not
// have.
DistTensor interpolate(const DistTensor& x, const InterpolateOptions&);
// To the nearest elements.
template <std::integral I>
DistTensor interpolate(const DistTensor& x, I size) {
  return interpolate(x, InterpolateOptions{.size = int64_t{size}});
}

// Where grid_sample() takes elements that are outside of x.
enum class GridPadding : uint8_t {
  kZeros,
  kBorder,     // the nearest element
  kReflection  // mirrored at the border, as often as needed
};
struct GridSampleOptions {
  Interpolation mode = Interpolation::kLinear;  // or kNearest or kCubic
  GridPadding padding = GridPadding::kZeros;
  // Whether -1 and 1 are the centers of the first and last elements of x,
  // instead of their outer edges.
  bool align_corners = false;
};

// x [b, c, space...], grid [b, out..., n] -> [b, c, out...]: the values of x at
// the n coordinates of each point, of which the first one belongs to the last
// dimension of space. x and grid have one type. A position that is NaN or out
// of range counts as outside. If the space of x is split, its ranks look up
// their own elements, and the result is a partial sum. Both x and the grid are
// reshaped to a flat space first, which moves them if only a later dimension of
// space is split (see reshape()). Throws Error if shapes or types do not fit.
DistTensor grid_sample(const DistTensor& x, const DistTensor& grid,
                       const GridSampleOptions& = {});

}  // namespace dtensor
