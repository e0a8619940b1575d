// SPDX-License-Identifier: Apache-2.0
// Every assignment of a mesh, for tests to walk.
#pragma once
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "dtensor/placement/axis_choices.h"
#include "dtensor/placement/bound_rule.h"
#include "dtensor/placement/dims.h"
#include "dtensor/placement/mesh.h"

namespace dtensor {

// Calls fn(choice per axis) for every combination, the last axis varying first.
template <class Fn>
void combinations(const std::vector<std::vector<AxisChoice>>& per_axis,
                  Fn&& fn) {
  std::vector<size_t> at(per_axis.size(), 0);
  std::vector<const AxisChoice*> picked(per_axis.size());
  for (;;) {
    for (size_t a = 0; a < at.size(); ++a) picked[a] = &per_axis[a][at[a]];
    fn(picked);
    size_t a = at.size();
    while (a > 0 && ++at[a - 1] == per_axis[a - 1].size()) at[--a] = 0;
    if (a == 0) return;
  }
}

// Every assignment of a mesh's axes to factors, or to partials that a note of
// the rule lets pass. The partials have the reductions `ops`.
inline std::vector<Assignment> enumerate(const BoundRule& rule,
                                         const Mesh& mesh,
                                         std::span<const ReduceOp> ops) {
  std::vector<std::vector<AxisChoice>> per_axis;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    std::vector<AxisChoice> list{{}};
    for (auto& factors : rule.choices()) list.push_back({factors});
    for (size_t n = 0; n < rule.rule().notes().size(); ++n)
      for (ReduceOp op : ops)
        if (rule.rule().notes()[n].pass(op))
          list.push_back({{}, static_cast<int>(n), op});
    per_axis.push_back(std::move(list));
  }
  std::vector<Assignment> all;
  combinations(per_axis, [&](const auto& picked) {
    auto dim_of = [&](int f, AxisMask mask) {
      return balanced(rule.size(f), mask).canonical(mesh);
    };
    assemble(rule, picked, dim_of, all.emplace_back());
  });
  return all;
}

}  // namespace dtensor
