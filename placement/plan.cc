#include "placement/plan.h"

#include <algorithm>

#include "placement/error.h"

namespace dtensor {
namespace {

// Building a plan step by step.
struct Builder {
  const CostTable& cost;
  const Spec* at;
  Plan plan;

  void add(StepKind kind, AxisMask axes, const Spec* to, int64_t bytes,
           ReduceOp op = ReduceOp::kSum) {
    if (to == at) return;
    bool sends = kind != StepKind::kSlice && kind != StepKind::kFill;
    plan.steps.push_back({kind, sends ? axes : 0, at, to, op, bytes});
    plan.bytes += bytes;
    plan.sends_ |= sends;
    if (sends) plan.time_ps += cost.collective_ps(axes, bytes);
    at = to;
  }
};

// The most elements that one rank needs under `to` and lacks under `from`.
int64_t most_lacking(const Spec* from, const Spec* to) {
  AxisMask axes = from->split_axes() | to->split_axes();
  int64_t most = 0;
  for_each_coord(from->mesh(), axes, [&](const Coord& c) {
    int64_t need = 1, have = 1;
    for (int d = 0; d < from->ndim(); ++d) {
      thread_local IntervalList a, b;
      a.clear(), b.clear();
      from->dim(d).intervals(from->mesh(), c, a);
      to->dim(d).intervals(from->mesh(), c, b);
      need *= length(b);
      have *= overlap(a, b);
    }
    most = std::max(most, need - have);
  });
  return most * to->components() * size_of(to->dtype());
}

AxisMask bit(int axis) { return AxisMask{1} << axis; }

// The axes of `from` (a dimension of size n) that are not in the prefix that
// it shares with `to`; `common` gets the shared prefix.
AxisMask moving_axes(const Dim& from, const Dim& to, const Mesh& mesh) {
  if (from == to) return 0;
  if (from.kind() != Dim::Kind::kLeaf || to.kind() != Dim::Kind::kLeaf)
    return from.axes();
  int k = from.split().common_prefix(to.split(), mesh, from.size());
  AxisMask axes = 0;
  for (int i = k; i < from.split().num_axes(); ++i)
    axes |= bit(from.split().axis(i));
  return axes;
}

// Does every rank's part of `to` lie in its part of `from` (to pushes axes)?
bool refines(const Dim& to, const Dim& from, const Mesh& mesh) {
  if (from == to || from.whole()) return true;
  return moving_axes(from, to, mesh) == 0 && from.kind() == Dim::Kind::kLeaf &&
         to.kind() == Dim::Kind::kLeaf;
}

// Between layouts with the same partials: slices, then one collective.
void move_splits(Builder& b, const Layout& target) {
  const Mesh& mesh = b.at->mesh();
  // Slice what can be had for nothing, where the axis is free here.
  Layout sliced = b.at->layout();
  AxisMask used = b.at->split_axes() | b.at->partial_axes();
  for (size_t d = 0; d < sliced.dims.size(); ++d) {
    AxisMask fresh = target.dims[d].axes() & ~sliced.dims[d].axes();
    if (refines(target.dims[d], sliced.dims[d], mesh) && !(fresh & used))
      sliced.dims[d] = target.dims[d];
  }
  b.add(StepKind::kSlice, 0, b.at->with(sliced), 0);
  Layout end = target;
  end.partials = b.at->layout().partials;
  const Spec* to = b.at->with(end);
  if (to == b.at) return;
  AxisMask group = 0;
  bool gathers = true;
  for (int d = 0; d < to->ndim(); ++d) {
    group |= moving_axes(b.at->dim(d), to->dim(d), mesh);
    gathers &= refines(b.at->dim(d), to->dim(d), mesh);
  }
  b.add(gathers ? StepKind::kAllGather : StepKind::kAllToAll, group, to,
        most_lacking(b.at, to));
}

Layout without(const Layout& l, AxisMask axes) {
  Layout r = l;
  std::erase_if(r.partials,
                [&](const Partial& p) { return axes & bit(p.axis); });
  return r;
}

// All-reduces the partials over `axes`, which commute with each other and with
// those inner to them: one collective for each kind.
void all_reduce(Builder& b, AxisMask axes) {
  const Mesh& mesh = b.at->mesh();
  while (b.at->partial_axes() & axes) {
    AxisMask group = 0;
    ReduceOp op = ReduceOp::kSum;
    for (const Partial& p : b.at->layout().partials) {
      if (!(axes & bit(p.axis)) || (group && p.op != op)) continue;
      op = p.op;
      group |= bit(p.axis);
    }
    int64_t n = b.at->largest_part_bytes() / size_of(b.at->dtype());
    b.add(StepKind::kAllReduce, group,
          b.at->with(without(b.at->layout(), group)),
          all_reduce_elements(n, mesh.size_of(group)) * size_of(b.at->dtype()),
          op);
  }
}

// Reduce-scatters the partials over `axes` (one kind) onto the dimensions of
// `to` that split over them, where those only push axes. Returns false, having
// done nothing, when no dimension does.
bool reduce_scatter(Builder& b, AxisMask axes, const Layout& to) {
  const Mesh& mesh = b.at->mesh();
  Layout next = b.at->layout();
  AxisMask group = 0;
  std::optional<ReduceOp> op;
  for (size_t d = 0; d < next.dims.size(); ++d) {
    const Dim &from = next.dims[d], &want = to.dims[d];
    AxisMask fresh = want.axes() & ~from.axes();
    if (!fresh || (fresh & ~axes) || !refines(want, from, mesh)) continue;
    bool same = true;
    for (int a = 0; a < mesh.num_axes(); ++a) {
      if (!(fresh & bit(a))) continue;
      auto p = next.partial_on(a);
      if (!p || (op && *op != *p) || *p == ReduceOp::kMean) same = false;
      if (p && !op) op = p;
    }
    if (!same) continue;
    next.dims[d] = want;
    group |= fresh;
  }
  if (!group) return false;
  const Spec* out = b.at->with(without(next, group));
  int64_t members = mesh.size_of(group);
  b.add(StepKind::kReduceScatter, group, out,
        (members - 1) * out->largest_part_bytes(), *op);
  return true;
}

bool all_commute(const std::vector<Partial>& partials) {
  for (const Partial& p : partials)
    if (!commute(p.op, partials[0].op)) return false;
  return true;
}

// The axes of the innermost partials that commute: those that may be combined
// first, in any order.
AxisMask innermost(const std::vector<Partial>& partials) {
  AxisMask axes = 0;
  for (size_t i = partials.size(); i > 0; --i) {
    if (!commute(partials[i - 1].op, partials.back().op)) break;
    axes |= bit(partials[i - 1].axis);
  }
  return axes;
}

// One candidate: the axes in `scatter` are reduce-scattered where possible.
Plan attempt(const Spec* from, const Spec* to, const CostTable& cost,
             AxisMask scatter) {
  Builder b{cost, from, {}};
  const Mesh& mesh = from->mesh();
  AxisMask keep = 0;
  for (const Partial& p : from->layout().partials)
    if (to->layout().partial_on(p.axis) == p.op) keep |= bit(p.axis);
  if (!all_commute(from->layout().partials) ||
      !all_commute(to->layout().partials))
    keep = 0;  // their order matters: resolve all of them, innermost first
  AxisMask resolve = from->partial_axes() & ~keep;
  while (b.at->partial_axes() & resolve) {
    AxisMask now = innermost(b.at->layout().partials) & resolve;
    while (reduce_scatter(b, now & scatter, to->layout())) {
    }
    all_reduce(b, now);
  }

  // A split axis that becomes partial: every rank keeps its part among
  // identities, when popping these axes is all that differs, and the identity
  // is one and the same. (An average has none: it is of the value on all.)
  AxisMask fill = to->partial_axes() & ~keep, in_place = 0;
  Layout popped = b.at->layout();
  bool direct = true;
  std::optional<ReduceOp> kind;
  for (const Partial& p : to->layout().partials) {
    if (!(fill & bit(p.axis)) || p.op == ReduceOp::kAvg ||
        p.op == ReduceOp::kMean)
      continue;
    direct &= !kind || *kind == p.op;
    kind = p.op;
    in_place |= bit(p.axis);
  }
  for (size_t d = 0; d < popped.dims.size(); ++d) {
    const Dim &have = popped.dims[d], &want = to->layout().dims[d];
    if (have == want) continue;
    direct &=
        refines(have, want, mesh) && !(have.axes() & ~want.axes() & ~in_place);
  }
  if (!direct || fill == 0) move_splits(b, to->layout());
  b.add(StepKind::kFill, 0, to, 0);
  return b.plan;
}

}  // namespace

std::string_view name(StepKind kind) {
  constexpr std::string_view names[] = {"slice",          "partial-fill",
                                        "all-gather",     "all-reduce",
                                        "reduce-scatter", "all-to-all"};
  return names[static_cast<size_t>(kind)];
}

int64_t all_reduce_elements(int64_t n, int64_t p) {
  if (p <= 1) return 0;
  int64_t chunk = (n + p - 1) / p;
  return (p - 1) * chunk + n - chunk;
}

Plan plan(const Spec* from, const Spec* to, const CostTable& cost) {
  if (from == to) return {};
  DT_CHECK(from->mesh() == to->mesh(), "redistribute",
           "{} is on mesh {}, {} is on mesh {}; both have to be on one mesh",
           from->to_string(), from->mesh().to_string(), to->to_string(),
           to->mesh().to_string());
  DT_CHECK(from->shape() == to->shape() && from->dtype() == to->dtype(),
           "redistribute", "{} cannot become {}: only the layout may change",
           from->to_string(), to->to_string());
  Plan best = attempt(from, to, cost, 0);
  AxisMask resolve = from->partial_axes() & ~to->partial_axes();
  // Every subset of the partial axes that the destination splits over.
  AxisMask candidates = resolve & to->split_axes();
  for (AxisMask s = candidates; s; s = (s - 1) & candidates) {
    Plan p = attempt(from, to, cost, s);
    if (p.time_ps < best.time_ps ||
        (p.time_ps == best.time_ps && p.steps.size() < best.steps.size()))
      best = std::move(p);
  }
  return best;
}

std::string to_string(const Step& s) {
  std::string t(name(s.kind));
  if (s.axes) t += " on " + s.from->mesh().axes_to_string(s.axes);
  return t + ": " + s.from->to_string() + " -> " + s.to->to_string() + ", " +
         std::to_string(s.bytes) + " bytes";
}

}  // namespace dtensor
