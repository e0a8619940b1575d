// SPDX-License-Identifier: Apache-2.0
// The calls of adaptive pools.
#include "dtensor/ops/pool.h"
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

template <DistTensor (*f)(const DistTensor&, const std::vector<int64_t>&)>
T adaptive(A a) {
  return {f(a.tensor(0), kept_sizes(a))};
}
template <auto f, auto with_indices>
T adaptive(A a) {
  if (a.flag(2, "return_indices", false))
    return as_list(with_indices(a.tensor(0), kept_sizes(a)));
  return {f(a.tensor(0), kept_sizes(a))};
}

}  // namespace

void add_windows_calls(CallTable& t) {
  t["nn.functional.adaptive_avg_pool1d"] = adaptive<adaptive_avg_pool1d>;
  t["nn.functional.adaptive_avg_pool2d"] = adaptive<adaptive_avg_pool2d>;
  t["nn.functional.adaptive_avg_pool3d"] = adaptive<adaptive_avg_pool3d>;
  t["nn.functional.adaptive_max_pool1d"] =
      adaptive<adaptive_max_pool1d, adaptive_max_pool1d_with_indices>;
  t["nn.functional.adaptive_max_pool2d"] =
      adaptive<adaptive_max_pool2d, adaptive_max_pool2d_with_indices>;
  t["nn.functional.adaptive_max_pool3d"] =
      adaptive<adaptive_max_pool3d, adaptive_max_pool3d_with_indices>;
}

}  // namespace dtensor::conformance
