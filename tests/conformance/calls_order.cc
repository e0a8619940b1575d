// SPDX-License-Identifier: Apache-2.0
// The calls of medians, quantiles and other functions of order.
#include "dtensor/ops/order.h"
#include "tests/conformance/bind.h"
#include "tests/conformance/calls.h"

namespace dtensor::conformance {
namespace {

using A = const Arguments&;
using T = std::vector<DistTensor>;

// A median along a dimension, or of all elements.
template <TopK (*along)(const DistTensor&, int, bool),
          DistTensor (*all)(const DistTensor&)>
T middle(A a) {
  const DistTensor x = a.tensor(0);
  if (!a.has(1, "dim")) return {all(x)};
  return as_list(along(x, static_cast<int>(a.integer(1, "dim")),
                       a.flag(2, "keepdim", false)));
}

QuantileInterpolation interpolation(A a) {
  const std::string text = a.text(kNamed, "interpolation", "linear");
  if (text == "lower") return QuantileInterpolation::kLower;
  if (text == "higher") return QuantileInterpolation::kHigher;
  if (text == "nearest") return QuantileInterpolation::kNearest;
  if (text == "midpoint") return QuantileInterpolation::kMidpoint;
  return QuantileInterpolation::kLinear;
}

template <class Q>
using Quantile = DistTensor(const DistTensor&, Q, std::optional<int>, bool,
                            QuantileInterpolation);
template <Quantile<const DistTensor&> tensor, Quantile<double> number>
T at_quantile(A a) {
  const DistTensor x = a.tensor(0);
  std::optional<int> dim;
  if (a.has(2, "dim")) dim = static_cast<int>(a.integer(2, "dim"));
  const bool keepdim = a.flag(3, "keepdim", false);
  if (a.is_tensor(1, "q"))
    return {tensor(x, a.tensor(1, "q"), dim, keepdim, interpolation(a))};
  return {number(x, a.number(1, "q"), dim, keepdim, interpolation(a))};
}

}  // namespace

void add_order_calls(CallTable& t) {
  t["kthvalue"] = call(kthvalue, {{}, {"k"}, {"dim", -1}, {"keepdim", false}});
  t["median"] = middle<median, median>;
  t["nanmedian"] = middle<nanmedian, nanmedian>;
  t["mode"] = call(mode, {{}, {"dim", -1}, {"keepdim", false}});
  t["quantile"] = at_quantile<quantile, quantile>;
  t["nanquantile"] = at_quantile<nanquantile, nanquantile>;
  t["msort"] = call(msort, {{}});
  t["histc"] = call(histc, {{}, {"bins", 100}, {"min", 0}, {"max", 0}});
}

}  // namespace dtensor::conformance
