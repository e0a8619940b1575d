// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/by_index.h"

#include "dtensor/placement/error.h"
#include "tests/conformance/bind.h"
#include "tests/conformance/calls.h"

namespace dtensor::conformance {
namespace {

using A = const Arguments&;
using T = std::vector<DistTensor>;

IndexReduction reduction_named(const std::string& text) {
  if (text == "sum") return IndexReduction::kSum;
  if (text == "prod") return IndexReduction::kProd;
  if (text == "mean") return IndexReduction::kMean;
  if (text == "amax") return IndexReduction::kAmax;
  if (text == "amin") return IndexReduction::kAmin;
  throw NotHere("reduce=" + text);
}

template <auto f>
T reduction_call(A a) {
  return {f(a.tensor(0), static_cast<int>(a.integer(1, "dim")),
            a.tensor(2, "index"), a.tensor(3, "src"),
            reduction_named(a.text(4, "reduce", "")),
            a.flag(5, "include_self", true))};
}

}  // namespace

void add_by_index_calls(CallTable& t) {
  t["scatter_reduce"] = reduction_call<scatter_reduce>;
}

}  // namespace dtensor::conformance
