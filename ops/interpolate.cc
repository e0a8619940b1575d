// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/interpolate.h"

#include <cmath>
#include <string_view>
#include <vector>

#include "dtensor/ops/op.h"
#include "dtensor/ops/resample.h"
#include "dtensor/ops/rows.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

// The number for dimension d of space.
template <class T>
T at(const std::vector<T>& list, int d) {
  return list[list.size() == 1 ? 0 : static_cast<size_t>(d)];
}

template <class T>
void check_list(std::string_view name, const std::vector<T>& list, int space) {
  DT_CHECK(list.size() == 1 || list.size() == static_cast<size_t>(space),
           "interpolate",
           "{} has {}; write one, or one for each of the {} dimensions of "
           "space",
           name, quantity(list.size(), "number", "numbers"), space);
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
  if (sized)
    check_list("size", o.size, space);
  else
    check_list("scale_factor", o.scale_factor, space);
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

}  // namespace dtensor
