// SPDX-License-Identifier: Apache-2.0
// The calls of diagonals, differences and ranges, and those that rearrange
// elements.
#include "dtensor/ops/diagonal.h"
#include "dtensor/ops/differences.h"
#include "dtensor/ops/ranges.h"
#include "dtensor/ops/rearrange.h"
#include "tests/conformance/bind.h"
#include "tests/conformance/calls.h"

namespace dtensor::conformance {
namespace {

using A = const Arguments&;
using T = std::vector<DistTensor>;

T gradient_call(A a) {
  const DistTensor x = a.tensor(0);
  const std::vector<int> dims = a.dims(kNamed, "dim");
  const int order = static_cast<int>(a.integer(kNamed, "edge_order", 1));
  if (!a.is_list(kNamed, "spacing"))
    return gradient(x, a.number(kNamed, "spacing", 1), dims, order);
  const nlohmann::json& list = a.raw(kNamed, "spacing");
  if (!list.empty() && list[0].is_object())
    return gradient(x, a.tensors(kNamed, "spacing"), dims, order);
  return gradient(x, list.get<std::vector<double>>(), dims, order);
}

// A call with positions x, or else with the distance dx.
template <DistTensor (*with_x)(const DistTensor&, const DistTensor&, int),
          DistTensor (*with_dx)(const DistTensor&, double, int)>
T trapezoids(A a) {
  const int dim = static_cast<int>(a.integer(kNamed, "dim", -1));
  if (a.has(1, "x")) return {with_x(a.tensor(0), a.tensor(1, "x"), dim)};
  return {with_dx(a.tensor(0), a.number(kNamed, "dx", 1), dim)};
}

}  // namespace

void add_rearrange_calls(CallTable& t) {
  const auto offset = Param("offset", 0);
  t["diagonal"] = call(diagonal, {{}, offset, {"dim1", 0}, {"dim2", 1}});
  t["linalg.diagonal"] =
      call(diagonal, {{}, offset, {"dim1", -2}, {"dim2", -1}});
  t["diag_embed"] = call(diag_embed, {{}, offset, {"dim1", -2}, {"dim2", -1}});
  t["diag"] = call(diag, {{}, {"diagonal", 0}});
  t["diagflat"] = call(diagflat, {{}, offset});
  t["diagonal_scatter"] =
      call(diagonal_scatter, {{}, {}, offset, {"dim1", 0}, {"dim2", 1}});
  t["block_diag"] = call(block_diag, {{}});
  t["cartesian_prod"] = call(cartesian_prod, {{}});
  t["combinations"] =
      call(combinations, {{}, {"r", 2}, {"with_replacement", false}});
  t["rot90"] = call(rot90, {{}, {"k", 1}, {"dims", {0, 1}}});
  t["unfold"] = call(unfold, {{}, {}, {}, {}});
  t["nn.functional.pixel_shuffle"] =
      call(pixel_shuffle, {{}, {"upscale_factor"}});
  t["nn.functional.pixel_unshuffle"] =
      call(pixel_unshuffle, {{}, {"downscale_factor"}});
  t["nn.functional.channel_shuffle"] = call(channel_shuffle, {{}, {"groups"}});
  t["linalg.vander"] = call(vander, {{}, {"N", nullptr}});
  t["unravel_index"] = [](A a) -> T {
    return unravel_index(a.tensor(0), a.shape(1));
  };
  t["diff"] = call(
      diff,
      {{}, {"n", 1}, {"dim", -1}, {"prepend", nullptr}, {"append", nullptr}});
  t["gradient"] = gradient_call;
  t["trapezoid"] = trapezoids<trapezoid, trapezoid>;
  t["cumulative_trapezoid"] =
      trapezoids<cumulative_trapezoid, cumulative_trapezoid>;
}

}  // namespace dtensor::conformance
