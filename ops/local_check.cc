// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/local_check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "dtensor/comm/agreement.h"
#include "dtensor/ops/local_map.h"
#include "dtensor/ops/local_scope.h"
#include "dtensor/ops/part_shapes.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/redistribute.h"
#include "dtensor/scopes.h"

namespace dtensor {
namespace {

constexpr std::string_view kName = "local_map";

double tolerance(DType t) {
  if (t == DType::kF64) return 1e-9;
  if (t == DType::kF32) return 1e-4;
  return is_float(t) ? 2e-2 : 0;
}

// The first element of a part that differs, by its index in the part; -1 if
// none does.
struct Difference {
  int64_t at = -1;
  double got = 0, want = 0;
};

Difference difference(const Tensor& got, const Tensor& want, double most) {
  const std::vector<double> a = got.to_doubles(), b = want.to_doubles();
  for (size_t i = 0; i < a.size(); ++i) {
    const bool equal = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])) ||
                       std::abs(a[i] - b[i]) <= most;
    if (!equal) return {static_cast<int64_t>(i), a[i], b[i]};
  }
  return {};
}

double largest(const Tensor& t) {
  double most = 0;
  for (double x : t.to_doubles())
    if (std::isfinite(x)) most = std::max(most, std::abs(x));
  return most;
}

// The global index of element `at` of this rank's part, in row-major order.
std::string index_of(const Spec* spec, const Coord& here, int64_t at) {
  const Region region = spec->region(here);
  const Shape part = spec->local_shape(here);
  Shape index = part;
  for (int d = part.size(); d-- > 0; at /= std::max<int64_t>(part[d], 1)) {
    int64_t i = at % part[d];
    for (const Interval& range : region[static_cast<size_t>(d)]) {
      if (i < range.size()) {
        index[d] = range.lo + i;
        break;
      }
      i -= range.size();
    }
  }
  return to_string(index);
}

}  // namespace

void check_local_map(const TensorFunction& fn, const RandomState& random,
                     const std::vector<DistTensor>& inputs,
                     const std::vector<DistTensor>& outputs) {
  const NoGrad no_grad;
  const Mesh mesh = inputs[0].mesh();
  std::vector<DistTensor> whole, expected;
  for (const DistTensor& x : inputs) {
    const Tensor all = x.full();
    whole.push_back(DistTensor::wrap(
        all, Spec::replicated(local_mesh(), x.shape(), x.dtype())));
  }
  {
    const LocalScope alone(inputs, true);
    const RandomScope draws(random);
    expected = fn(whole);
  }
  DT_CHECK(expected.size() == outputs.size(), kName,
           "the function returned {} for its parts, but {} for the whole "
           "inputs; return as many in both cases",
           quantity(outputs.size(), "tensor", "tensors"), expected.size());
  const std::vector<int64_t> ranks = world_ranks(mesh);
  for (size_t o = 0; o < outputs.size(); ++o) {
    const Spec* spec = outputs[o].spec();
    const Shape& shape = expected[o].shape();
    DT_CHECK(shape == spec->shape() && expected[o].dtype() == spec->dtype(),
             kName,
             "output {} is {}, but the function of the whole inputs returns "
             "{}{}; correct the layouts",
             o, spec->to_string(), name(expected[o].dtype()), to_string(shape));
    Layout combined = spec->layout();
    combined.partials.clear();
    const Spec* to = spec->with(combined);
    const Tensor& all = expected[o].local();
    const Difference d = difference(
        outputs[o].redistribute(to).local(),
        redistribute_local(all, Spec::replicated(mesh, shape, to->dtype()), to),
        tolerance(to->dtype()) * largest(all));
    const auto found = gathered_numbers(
        kName, ranks,
        {d.at, std::bit_cast<int64_t>(d.got), std::bit_cast<int64_t>(d.want)});
    std::vector<int64_t> bad;
    for (size_t r = 0; r < found.size(); ++r)
      if (found[r][0] >= 0) bad.push_back(static_cast<int64_t>(r));
    if (bad.empty()) continue;
    const auto& first = found[static_cast<size_t>(bad[0])];
    const std::string index = index_of(to, mesh.coordinate(bad[0]), first[0]);
    for (int64_t& r : bad) r = mesh.world_rank(r);
    fail(kName,
         "output {}, {}, is wrong on rank{} {}: element {} is {} on rank {}, "
         "but the function of the whole inputs gives {}; correct the layouts, "
         "or combine the ranks' values inside the function (all_reduce), or "
         "write LocalMapOptions{{.check = false}} if the function is meant to "
         "depend on the mesh",
         o, spec->to_string(), bad.size() == 1 ? "" : "s", ranks_to_string(bad),
         index, std::bit_cast<double>(first[1]), bad[0],
         std::bit_cast<double>(first[2]));
  }
}

}  // namespace dtensor
