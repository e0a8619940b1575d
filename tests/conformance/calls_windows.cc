// SPDX-License-Identifier: Apache-2.0
// The calls of adaptive pools, interpolation, sampling and unfolding.
#include "dtensor/ops/interpolate.h"
#include "dtensor/ops/pool.h"
#include "dtensor/ops/unfold.h"
#include "tests/conformance/bind.h"
#include "tests/conformance/calls.h"

namespace dtensor::conformance {
namespace {

using A = const Arguments&;
using T = std::vector<DistTensor>;

// An output_size, in which a null keeps the size of x.
std::vector<int64_t> kept_sizes(A a) {
  const nlohmann::json& given = a.raw(1, "output_size");
  if (!given.is_array()) return a.integers(1, "output_size");
  std::vector<int64_t> sizes;
  for (const nlohmann::json& n : given)
    sizes.push_back(n.is_null() ? -1 : n.get<int64_t>());
  return sizes;
}

template <DistTensor (*f)(const DistTensor&, const PerDimension&)>
T adaptive(A a) {
  return {f(a.tensor(0), kept_sizes(a))};
}
template <auto f, auto with_indices>
T adaptive(A a) {
  if (a.flag(2, "return_indices", false))
    return as_list(with_indices(a.tensor(0), kept_sizes(a)));
  return {f(a.tensor(0), kept_sizes(a))};
}

Interpolation mode_of(const std::string& text) {
  if (text == "nearest") return Interpolation::kNearest;
  if (text == "nearest-exact") return Interpolation::kNearestExact;
  if (text == "area") return Interpolation::kArea;
  return text == "bicubic" ? Interpolation::kCubic : Interpolation::kLinear;
}

T interpolate_call(A a) {
  InterpolateOptions o;
  if (a.has(1, "size")) o.size = a.integers(1, "size");
  if (a.has(2, "scale_factor")) {
    const nlohmann::json& given = a.raw(2, "scale_factor");
    o.scale_factor = given.is_array() ? given.get<std::vector<double>>()
                                      : std::vector{given.get<double>()};
  }
  o.mode = mode_of(a.text(3, "mode", "nearest"));
  o.align_corners = a.flag(4, "align_corners", false);
  o.recompute_scale_factor = a.flag(5, "recompute_scale_factor", false);
  o.antialias = a.flag(6, "antialias", false);
  return {interpolate(a.tensor(0), o)};
}

T grid_sample_call(A a) {
  GridSampleOptions o;
  o.mode = mode_of(a.text(2, "mode", "bilinear"));
  const std::string padding = a.text(3, "padding_mode", "zeros");
  o.padding = padding == "border"       ? GridPadding::kBorder
              : padding == "reflection" ? GridPadding::kReflection
                                        : GridPadding::kZeros;
  o.align_corners = a.flag(4, "align_corners", false);
  return {grid_sample(a.tensor(0), a.tensor(1, "grid"), o)};
}

UnfoldOptions unfold_options(A a) {
  UnfoldOptions o;
  o.dilation = a.integers(2, "dilation", o.dilation);
  o.padding = a.integers(3, "padding", o.padding);
  o.stride = a.integers(4, "stride", o.stride);
  return o;
}

}  // namespace

void add_windows_calls(CallTable& t) {
  t["nn.functional.adaptive_avg_pool1d"] = adaptive<adaptive_avg_pool1d>;
  t["nn.functional.adaptive_avg_pool2d"] = adaptive<adaptive_avg_pool2d>;
  t["nn.functional.adaptive_max_pool2d"] =
      adaptive<adaptive_max_pool2d, adaptive_max_pool2d_with_indices>;
  t["nn.functional.interpolate"] = interpolate_call;
  t["nn.functional.grid_sample"] = grid_sample_call;
  t["nn.functional.unfold"] = [](A a) -> T {
    return {
        unfold(a.tensor(0), a.integers(1, "kernel_size"), unfold_options(a))};
  };
}

}  // namespace dtensor::conformance
