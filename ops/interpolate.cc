// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/interpolate.h"

#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/ops/composed.h"
#include "dtensor/ops/gather_op.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/resample.h"
#include "dtensor/ops/rows.h"
#include "dtensor/ops/view.h"
#include "dtensor/ops/windows.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

// The number for dimension d of space.
template <class T>
T at(const std::vector<T>& list, int d) {
  return list[list.size() == 1 ? 0 : static_cast<size_t>(d)];
}

// How a dimension of x becomes one of `out` elements. `factor` is the
// scale_factor, or 0.
Resampling resampling(const InterpolateOptions& o, int64_t in, int64_t out,
                      double factor) {
  const auto ratio = [](int64_t a, int64_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
  };
  Resampling r{.taps = Taps::kNearest, .size = out};
  r.scale =
      factor > 0 && !o.recompute_scale_factor ? 1 / factor : ratio(in, out);
  switch (o.mode) {
    case Interpolation::kNearest:
      break;
    case Interpolation::kNearestExact:
      r.offset = r.scale / 2;
      break;
    case Interpolation::kArea:
      r.taps = Taps::kArea;
      break;
    case Interpolation::kLinear:
    case Interpolation::kCubic:
      r.taps = o.mode == Interpolation::kLinear ? Taps::kLinear : Taps::kCubic;
      r.antialias = o.antialias;
      if (o.align_corners)
        r.scale = out > 1 ? ratio(in - 1, out - 1) : 0;
      else
        r.offset = r.scale / 2 - 0.5;
  }
  return r;
}

// A position among `size` elements, moved into them. Its slope is 0 where it
// was moved to an end, and at the ends, as in torch.
DistTensor within(DistTensor p, int64_t size, const GridSampleOptions& o) {
  if (o.padding == GridPadding::kZeros) return p;
  const auto n = static_cast<double>(size);
  if (o.padding == GridPadding::kReflection) {
    const double low = o.align_corners ? 0 : -0.5;
    const double span = o.align_corners ? n - 1 : n;
    if (span == 0) return mul(p, 0);
    p = p - low;
    p = remainder(where(lt(p, 0), -p, p), 2 * span);
    p = where(ge(p, span), 2 * span - p, p) + low;
  }
  return where(le(p, 0), 0, where(ge(p, n - 1), n - 1, p));
}

// A few indices of a dimension of x for each point, and their weights.
struct Neighbour {
  DistTensor index, weight;
};

// `p` is the position in the dimension, as a whole number. Neighbours outside
// of x have the weight 0, and an index of -`elements`, the number of all
// elements, so that the index in all dimensions is negative too. There
// take_weighted() reads 0: x may have infinities.
Neighbour neighbour(const DistTensor& p, const DistTensor& weight, int64_t size,
                    int64_t elements) {
  const DistTensor inside =
      logical_and(ge(p, 0), le(p, static_cast<double>(size - 1)));
  return {where(inside, cast(p, DType::kI64), -elements),
          where(inside, weight, 0)};
}

std::vector<Neighbour> neighbours(const DistTensor& coordinate, int64_t size,
                                  int64_t elements,
                                  const GridSampleOptions& o) {
  const auto n = static_cast<double>(size);
  const DistTensor p = o.align_corners ? (coordinate + 1) * ((n - 1) / 2)
                                       : ((coordinate + 1) * n - 1) / 2;
  if (o.mode == Interpolation::kNearest) {
    const DistTensor whole = round(within(p, size, o));
    // The grid has a gradient, of zeros.
    return {neighbour(whole, whole * 0 + 1, size, elements)};
  }
  if (o.mode == Interpolation::kLinear) {
    const DistTensor in = within(p, size, o), low = floor(in).detach(),
                     t = in - low;
    return {neighbour(low, 1 - t, size, elements),
            neighbour(low + 1, t, size, elements)};
  }
  // Padding moves the neighbours, not the position.
  const DistTensor low = floor(p).detach();
  const auto weights = cubic_weights(p - low);
  std::vector<Neighbour> all;
  for (int i = 0; i < 4; ++i)
    all.push_back(neighbour(within(low + (i - 1), size, o),
                            weights[static_cast<size_t>(i)], size, elements));
  return all;
}

}  // namespace

DistTensor interpolate(const DistTensor& x, const InterpolateOptions& o) {
  check_defined("interpolate", {x});
  check_float("interpolate", x.dtype());
  const int space = x.ndim() - 2;
  DT_CHECK(space >= 1 && space <= 3, "interpolate",
           "x has shape {}; pass one of 3 to 5 dimensions: the batch, the "
           "channels, and 1 to 3 of space",
           to_string(x.shape()));
  const bool sized = !o.size.empty();
  DT_CHECK(sized == o.scale_factor.empty(), "interpolate",
           "size has {} and scale_factor {}; write one of the two",
           quantity(o.size.size(), "number", "numbers"), o.scale_factor.size());
  const bool smooth =
      o.mode == Interpolation::kLinear || o.mode == Interpolation::kCubic;
  DT_CHECK(smooth || !(o.align_corners || o.antialias), "interpolate",
           "align_corners is {} and antialias {}, but only kLinear and kCubic "
           "have them; leave them out",
           o.align_corners, o.antialias);
  DT_CHECK(!sized || !o.recompute_scale_factor, "interpolate",
           "recompute_scale_factor is true, but there is no scale_factor; "
           "leave it out");
  check_per_dimension(sized ? o.size.size() : o.scale_factor.size(), space,
                      sized ? "size" : "scale_factor", "interpolate");
  std::vector<Resampling> all;
  for (int d = 0; d < space; ++d) {
    const double factor = sized ? 0 : at(o.scale_factor, d);
    const int64_t in = x.size(d + 2);
    const double out = sized ? static_cast<double>(at(o.size, d))
                             : std::floor(static_cast<double>(in) * factor);
    DT_CHECK(in >= 1 && out >= 1 && out < 2147483648.0, "interpolate",
             "{} elements would become {} in dimension {} of space; both "
             "numbers must be from 1 to 2147483647",
             in, out, d);
    all.push_back(resampling(o, in, static_cast<int64_t>(out), factor));
  }
  DistTensor y = x;
  for (int d = 0; d < space; ++d)
    y = resample(y, d + 2, all[static_cast<size_t>(d)]);
  return y;
}

DistTensor grid_sample(const DistTensor& x, const DistTensor& grid,
                       const GridSampleOptions& o) {
  check_defined("grid_sample", {x, grid});
  const int space = x.ndim() - 2;
  DT_CHECK(space >= 1 && space <= 3, "grid_sample",
           "x has shape {}; pass one of 3 to 5 dimensions: the batch, the "
           "channels, and 1 to 3 of space",
           to_string(x.shape()));
  DT_CHECK(grid.ndim() == x.ndim() && grid.size(0) == x.size(0) &&
               grid.size(-1) == space,
           "grid_sample",
           "the grid has shape {} and x {}; pass a grid of {} dimensions: the "
           "batch, which is {}, {} of points, and {} coordinates",
           to_string(grid.shape()), to_string(x.shape()), x.ndim(), x.size(0),
           space, space);
  DT_CHECK(grid.dtype() == x.dtype() && is_float(x.dtype()), "grid_sample",
           "x is {} and the grid {}; cast both to one float type",
           name(x.dtype()), name(grid.dtype()));
  DT_CHECK(o.mode == Interpolation::kNearest ||
               o.mode == Interpolation::kLinear ||
               o.mode == Interpolation::kCubic,
           "grid_sample", "the mode is {}; write kNearest, kLinear or kCubic",
           o.mode == Interpolation::kArea ? "kArea" : "kNearestExact");
  Shape out{x.size(0), x.size(1)};
  int64_t elements = 1, points = 1;
  for (int d = 0; d < space; ++d) {
    DT_CHECK(x.size(d + 2) > 0, "grid_sample",
             "x has shape {}; pass one with elements in each dimension of "
             "space",
             to_string(x.shape()));
    elements *= x.size(d + 2);
    points *= grid.size(d + 1);
    out.push_back(grid.size(d + 1));
  }
  // The neighbours of each point [b, 1, points], dimension after dimension.
  std::vector<Neighbour> all;
  const DistTensor flat_grid = reshape(grid, {x.size(0), 1, points, space});
  for (int d = 0; d < space; ++d) {
    const std::vector<Neighbour> here = neighbours(
        select(flat_grid, 3, space - 1 - d), x.size(d + 2), elements, o);
    std::vector<Neighbour> both;
    for (const Neighbour& a : all)
      for (const Neighbour& b : here)
        both.push_back(
            {a.index * x.size(d + 2) + b.index, a.weight * b.weight});
    all = d == 0 ? here : both;
  }
  std::vector<DistTensor> index, weights;
  for (const Neighbour& n : all)
    index.push_back(n.index), weights.push_back(n.weight);
  const auto for_channels = [&](const std::vector<DistTensor>& list) {
    return expand(stack(list, 0), {-1, -1, x.size(1), -1});
  };
  const DistTensor y =
      take_weighted(reshape(x, {x.size(0), x.size(1), elements}),
                    for_channels(index), for_channels(weights));
  return reshape(y, out);
}

}  // namespace dtensor
