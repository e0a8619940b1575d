// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/contraction_op.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/bound_rule.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

// The Dims of the result, and the axes that split neither of them. Those axes
// divide the contraction over k.
struct Grid {
  Dim m, n;
  std::vector<int> shares_k;
  int64_t sharers = 1;  // the number of ranks along those axes
  // Both operands are already split along k, alike and over exactly the axes of
  // shares_k, so nothing is gathered.
  bool in_place = false;
};

Grid grid(const Spec* a, const Spec* b) {
  DT_CHECK(a->ndim() == 2 && b->ndim() == 2 && a->shape()[1] == b->shape()[0],
           "summa", "shapes are {} and {}; write matrices [m, k] and [k, n]",
           to_string(a->shape()), to_string(b->shape()));
  DT_CHECK(a->mesh() == b->mesh(), "summa",
           "inputs are on two meshes, {} and {}; move one to the other's mesh",
           a->mesh().to_string(), b->mesh().to_string());
  const Mesh& mesh = a->mesh();
  Grid g{a->layout().dims[0], b->layout().dims[1], {}};
  const AxisMask both = g.m.axes() & g.n.axes();
  DT_CHECK(!both, "summa",
           "the rows of {} and the columns of {} are both split over {}; split "
           "them over different axes",
           a->to_string(), b->to_string(), mesh.axes_to_string(both));
  AxisMask shares = 0;
  for (int axis = 0; axis < mesh.num_axes(); ++axis)
    if (!((g.m.axes() | g.n.axes()) >> axis & 1) && mesh.axis_size(axis) > 1) {
      g.shares_k.push_back(axis);
      shares |= AxisMask{1} << axis;
    }
  g.sharers = mesh.size_of(shares);
  const Dim& k = a->layout().dims[1];
  g.in_place = k == b->layout().dims[0] && k.axes() == shares;
  return g;
}

// Inserts the indices at which some rank's part of a dimension begins or ends.
void add_ends(const Dim& dim, const Mesh& mesh, std::set<int64_t>& ends) {
  IntervalList parts;
  for_each_coord(mesh, dim.axes(), [&](const Coord& at) {
    parts.clear();
    dim.intervals(mesh, at, parts);
    for (const Interval& i : parts) ends.insert({i.lo, i.hi});
  });
}

// The Dim of the indices [lo, hi) of k. `ends` cuts them into segments. Each
// segment is divided between the ranks that share k, evenly up to one index.
// Remainders are assigned in turn, so that no rank gets two indices more than
// another.
Dim shared(const Grid& g, const Mesh& mesh, const std::set<int64_t>& ends,
           int64_t lo, int64_t hi) {
  if (g.shares_k.empty() || lo == hi) return Dim(hi - lo);
  std::vector<Dim> segments;
  int64_t turn = 0;  // the rank that takes the next remainder
  for (auto end = ends.upper_bound(lo); lo < hi; ++end) {
    const int64_t next = end == ends.end() ? hi : std::min(*end, hi),
                  left = (next - lo) % g.sharers;
    std::vector<int64_t> points{0};
    for (int64_t i = 0; i < g.sharers; ++i) {
      const int64_t behind = (i - turn + g.sharers) % g.sharers;
      points.push_back(points.back() + (next - lo) / g.sharers +
                       (behind < left ? 1 : 0));
    }
    segments.emplace_back(next - lo,
                          Split::at(g.shares_k, std::move(points), mesh));
    turn = (turn + left) % g.sharers;
    lo = next;
  }
  return segments.size() == 1 ? segments[0] : Dim::concat(segments);
}

const Op& product() { return product_op("matmul", "mk,kn->mn"); }

Assignment assignment(const Grid& g, const Dim& k) {
  Assignment who;
  for (const Factor& f : product_rule("mk,kn->mn").factors())
    who.dims.push_back(f.letter == 'm' ? g.m : f.letter == 'n' ? g.n : k);
  return who;
}

}  // namespace

int64_t summa_panels(const Spec* a, const Spec* b,
                     const SummaOptions& options) {
  const Grid g = grid(a, b);
  DT_CHECK(options.panel_bytes >= 0, "summa",
           "panel_bytes is {}; write the most bytes of a panel, or 0 (no "
           "limit)",
           options.panel_bytes);
  const int64_t k = a->shape()[1];
  if (options.panel_bytes == 0 || k == 0 || g.in_place) return 1;
  const Mesh& mesh = a->mesh();
  const int64_t one = g.m.largest(mesh) * size_of(a->dtype()) +
                      g.n.largest(mesh) * size_of(b->dtype());
  DT_CHECK(one <= options.panel_bytes, "summa",
           "a column of {} and a row of {} take {} bytes on a rank, but "
           "panel_bytes is {}; write at least {}, or 0 (no limit)",
           a->to_string(), b->to_string(), one, options.panel_bytes, one);
  if (one == 0) return 1;
  const int64_t most = std::min(k, options.panel_bytes / one);
  const int64_t width = std::min(k, most * g.sharers);
  return (k + width - 1) / width;
}

DistTensor summa(const DistTensor& a, const DistTensor& b,
                 const SummaOptions& options) {
  check_defined("summa", {a, b});
  if (a.dtype() != b.dtype()) {
    const DType t = promote(a.dtype(), b.dtype());
    return summa(cast(a, t), cast(b, t), options);
  }
  const Grid g = grid(a.spec(), b.spec());
  const int64_t k = a.size(1),
                panels = summa_panels(a.spec(), b.spec(), options);
  std::set<int64_t> ends;
  add_ends(a.layout().dims[1], a.mesh(), ends);
  add_ends(b.layout().dims[0], a.mesh(), ends);
  DistTensor sum;
  for (int64_t i = 0; i < panels; ++i) {
    const int64_t lo = i * k / panels, hi = (i + 1) * k / panels;
    const Dim part =
        g.in_place ? a.layout().dims[1] : shared(g, a.mesh(), ends, lo, hi);
    const Assignment who = assignment(g, part);
    const auto spec = [&](const DistTensor& x, Dim first, Dim second) {
      const Shape shape = {first.size(), second.size()};
      return Spec::get(x.mesh(), shape,
                       {{std::move(first), std::move(second)}, {}}, x.dtype());
    };
    const Spec *columns = spec(a, g.m, part), *rows = spec(b, part, g.n);
    // checkpoint() drops the gathered panels. In the backward pass, the
    // gradients of redistribute() return the panels' gradients to a and b.
    const DistTensor panel = checkpoint(
        [who, columns, rows](const std::vector<DistTensor>& in) {
          const DistTensor both[] = {in[0].redistribute(columns),
                                     in[1].redistribute(rows)};
          return std::vector<DistTensor>{apply1(product(), both, {}, &who)};
        },
        {slice(a, 1, lo, hi), slice(b, 0, lo, hi)})[0];
    sum = sum.defined() ? add(sum, panel) : panel;
  }
  return sum;
}

}  // namespace dtensor
