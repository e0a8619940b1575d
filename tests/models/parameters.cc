// SPDX-License-Identifier: Apache-2.0
#include "tests/models/parameters.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace dtensor::testing {
namespace {

using Axes = std::vector<std::pair<std::string, Placement>>;

// Adds the split of `dim` over an axis, if the mesh has the axis.
void split_over(const Mesh& mesh, const std::string& axis, int dim,
                Axes& axes) {
  if (mesh.has_axis(axis)) axes.push_back({axis, Shard(dim)});
}

}  // namespace

DistTensor Parameters::operator()(const std::string& name, const Shape& shape,
                                  std::optional<double> scale, double around) {
  const auto found =
      std::find_if(all_.begin(), all_.end(),
                   [&](const NamedTensor& t) { return t.name == name; });
  if (found != all_.end()) return found->tensor;
  const double row =
      shape.empty()
          ? 1.0
          : static_cast<double>(numel(shape) / std::max<int64_t>(1, shape[0]));
  Array a = numbers(shape, all_.size() + 1,
                    scale.value_or(std::sqrt(3 / std::max(1.0, row))));
  for (double& v : a.v) v += around;
  Axes axes;
  if (!shape.empty()) split_over(mesh_, "tp", 0, axes);
  DistTensor x = split(std::move(a), axes);
  all_.push_back({name, x.set_requires_grad()});
  return x;
}

DistTensor Parameters::split(Array a, const Axes& axes) const {
  if (is_float(a.dtype)) a.dtype = dtype_;
  return DistTensor::from_global(tensor_of(a), mesh_, Placements(axes));
}

DistTensor Parameters::input(const Array& a, std::optional<int> space) const {
  Axes axes;
  split_over(mesh_, "dp", 0, axes);
  if (space) split_over(mesh_, "sp", *space, axes);
  return split(a, axes);
}

}  // namespace dtensor::testing
