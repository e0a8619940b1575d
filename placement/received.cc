// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/received.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "dtensor/placement/region.h"

namespace dtensor {
namespace {

// Sums may exceed int64_t: every rank may hold a copy of a large tensor.
using Sum = __int128;

// Elements, summed over all ranks of a mesh: `all` that a rank holds under one
// spec, and those of them that it also holds under another spec.
struct Held {
  Sum all = 1, common = 1;
};

// REQUIRES: both specs are on one mesh and have one shape.
Held held(const Spec& spec, const Spec& other) {
  const Mesh& mesh = spec.mesh();
  Held sum;
  AxisMask left = mesh.all_axes();
  std::vector<AxisMask> depend;
  for (int d = 0; d < spec.ndim(); ++d)
    depend.push_back(spec.dim(d).axes() | other.dim(d).axes());
  for (const auto& [together, axes] : dims_together(depend)) {
    Sum all = 0, common = 0;
    IntervalList has, had;
    for_each_coord(mesh, axes, [&](const Coord& c) {
      Sum elements = 1, both = 1;
      for (const size_t at : together) {
        const int d = static_cast<int>(at);
        has.clear();
        had.clear();
        spec.dim(d).intervals(mesh, c, has);
        other.dim(d).intervals(mesh, c, had);
        elements *= length(has);
        both *= overlap(has, had);
      }
      all += elements;
      common += both;
    });
    sum.all *= all;
    sum.common *= common;
    left &= ~axes;
  }
  sum.all *= mesh.size_of(left);
  sum.common *= mesh.size_of(left);
  return sum;
}

// Between two meshes, only ranks that are in both can already have some
// elements.
Held held_across(const Spec& to, const Spec& from) {
  Held sum = held(to, to);
  sum.common = 0;
  for (int64_t r = 0; r < to.mesh().num_ranks(); ++r) {
    const int64_t was = from.mesh().mesh_rank_of(to.mesh().world_rank(r));
    if (was < 0) continue;
    sum.common += overlap(to.region(to.mesh().coordinate(r)),
                          from.region(from.mesh().coordinate(was)));
  }
  return sum;
}

Sum elements(const Step& step, const CostTable& cost) {
  const Spec &from = *step.from, &to = *step.to;
  const Mesh& mesh = from.mesh();
  if (step.kind == StepKind::kAllReduce) {
    // The ranks of a group hold equally much.
    const int64_t p = mesh.size_of(step.axes);
    return held(from, from).all / p *
           all_reduce_elements_of_all(1, p, one_shot(step.from, cost));
  }
  // Each index that a rank wants comes once from every rank that has a term of
  // it; the rank's own term is there already.
  AxisMask terms = 0;
  for (const Partial& p : from.layout().partials)
    if ((step.axes >> p.axis & 1) && to.layout().partial_on(p.axis) != p.op)
      terms |= AxisMask{1} << p.axis;
  const Held sum = mesh == to.mesh() ? held(to, from) : held_across(to, from);
  return mesh.size_of(terms) * sum.all - sum.common;
}

}  // namespace

std::vector<DimsTogether> dims_together(std::span<const AxisMask> axes) {
  std::vector<DimsTogether> groups;
  for (size_t d = 0; d < axes.size(); ++d) {
    DimsTogether joined{{d}, axes[d]};
    std::erase_if(groups, [&](const DimsTogether& g) {
      if (!(g.axes & axes[d])) return false;
      joined.dims.insert(joined.dims.end(), g.dims.begin(), g.dims.end());
      joined.axes |= g.axes;
      return true;
    });
    groups.push_back(std::move(joined));
  }
  return groups;
}

int64_t received_by_all(const Step& step, const CostTable& cost) {
  if (!sends(step.kind)) return 0;
  const Sum bytes = elements(step, cost) * step.from->components() *
                    size_of(step.from->dtype());
  return static_cast<int64_t>(
      std::min<Sum>(bytes, std::numeric_limits<int64_t>::max()));
}

}  // namespace dtensor
