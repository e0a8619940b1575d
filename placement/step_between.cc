// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/step_between.h"

#include <optional>

namespace dtensor {
namespace {

AxisMask bit(int axis) { return AxisMask{1} << axis; }

}  // namespace

Steps::Steps(const Route& route, const Spec* source, int64_t one_shot)
    : route_(route),
      partials_(source->layout().partials),
      one_shot_(one_shot),
      mean_(source->components() > 1) {}

bool Steps::between(const Waypoint& s, const Waypoint& t,
                    StepBetween& e) const {
  if (t.partial & ~s.partial) return false;
  AxisMask combined = s.partial & ~t.partial;
  if (combined && !combinable(s.partial, combined, e.op)) return false;
  AxisMask moving = 0, pushed = 0;
  bool refines = true, gathers = true, aligned = true, same_parts = true;
  bool trees = false;
  for (int d = 0; d < route_.ndim(); ++d) {
    int a = s.cuts[static_cast<size_t>(d)], b = t.cuts[static_cast<size_t>(d)];
    if (a == b) continue;
    const Cut &x = route_.cut(d, a), &y = route_.cut(d, b);
    int k = route_.common_prefix(d, a, b);
    AxisMask stay = route_.common_axes(d, a, b);
    bool pops = k == y.num_axes && !y.tree, pushes = k == x.num_axes && !x.tree;
    moving |= x.axes & ~stay;
    pushed |= y.axes & ~stay;
    refines &= pushes;
    trees |= y.tree != nullptr;
    gathers &= pops;
    aligned &= pops || pushes;
    same_parts &= x.parts == y.parts && x.granule == y.granule && !x.points &&
                  !y.points && !x.tree && !y.tree;
  }
  e.group = moving | combined;
  if (combined) {
    // (In a tree, several ranks may have an index; a reduce-scatter gives it to
    // one.)
    bool scatters = refines && pushed == combined && !trees;
    e.kind = scatters             ? StepKind::kReduceScatter
             : !moving && !pushed ? StepKind::kAllReduce
                                  : StepKind::kReduceExchange;
  } else {
    e.kind = refines            ? StepKind::kSlice
             : gathers          ? StepKind::kAllGather
             : moving != pushed ? StepKind::kExchange
             : same_parts       ? StepKind::kPermute
             : aligned          ? StepKind::kAllToAll
                                : StepKind::kExchange;
    if (e.kind == StepKind::kSlice) e.group = 0;
  }
  return true;
}

// Whether the partials on the axes `combined` can be combined next, in one
// collective, if the source's partials on `present` are still uncombined. Sets
// `op`.
bool Steps::combinable(AxisMask present, AxisMask combined,
                       ReduceOp& op) const {
  const auto& list = partials_;
  std::optional<ReduceOp> one, innermost;
  for (size_t i = list.size(); i > 0; --i) {
    const Partial& p = list[i - 1];
    if (!(present & bit(p.axis))) continue;
    if (!innermost) innermost = p.op;
    if (!commute(p.op, *innermost)) return !(combined);
    if (!(combined & bit(p.axis))) continue;
    if (one && *one != p.op) return false;
    one = op = p.op;
    combined &= ~bit(p.axis);
  }
  return combined == 0;
}

int64_t Steps::received(const Waypoint& s, const Waypoint& t, StepBetween& e,
                        bool exact) const {
  if (!sends(e.kind)) return 0;
  int64_t n = components(s);
  if (e.kind == StepKind::kAllReduce)
    return all_reduce_elements(n * largest(s), route_.mesh().size_of(e.group),
                               n * largest(s) <= one_shot_);
  AxisMask combined = s.partial & ~t.partial;
  int64_t q = route_.mesh().size_of(combined);
  int64_t lack = route_.lack(s.cuts, t.cuts, q, exact);
  if (lack == 0 && !combined) {
    lack = route_.lack(s.cuts, t.cuts, q, true);
    if (lack == 0) e = {};
  }
  return n * lack;
}

int64_t Steps::least_received(const Waypoint& s, const Waypoint& t,
                              const StepBetween& e) const {
  if (e.kind == StepKind::kAllReduce) return 0;
  const int64_t q = route_.mesh().size_of(s.partial & ~t.partial);
  return components(s) * route_.least_lack(s.cuts, t.cuts, q);
}

int64_t Steps::held(const Waypoint& s, bool is_source, const Waypoint& t,
                    bool is_destination, const StepBetween& e) const {
  int64_t n = is_source ? 0 : largest(s) * components(s);
  if (sends(e.kind) && components(s) > components(t)) n += 2 * largest(t);
  if (!is_destination && (sends(e.kind) || !is_source))
    n += largest(t) * components(t);
  return n;
}

Waypoint Steps::sliced(const Waypoint& s, const Waypoint& t) const {
  Waypoint m = s;
  m.largest = -1;
  AxisMask used = s.split | s.partial;
  for (int d = 0; d < route_.ndim(); ++d) {
    auto i = static_cast<size_t>(d);
    const Cut &x = route_.cut(d, s.cuts[i]), &y = route_.cut(d, t.cuts[i]);
    if (!x.tree && !(y.axes & ~x.axes & used) &&
        route_.common_prefix(d, s.cuts[i], t.cuts[i]) == x.num_axes)
      m.cuts[i] = t.cuts[i];
  }
  m.split = route_.axes(m.cuts);
  return m;
}

void Steps::share_replicas(const Waypoint& s, const Waypoint& t, Prices& prices,
                           StepBetween& e) const {
  for (int a = 0; a < route_.mesh().num_axes(); ++a) {
    if (!(t.split & ~s.split & ~s.partial & ~e.group & bit(a))) continue;
    const LinkCost with = prices.link(e.kind, e.group | bit(a));
    if (with.never_above(prices.link(e.kind, e.group))) e.group |= bit(a);
  }
}

Layout Steps::layout(const Waypoint& w) const {
  Layout l;
  for (int d = 0; d < route_.ndim(); ++d)
    l.dims.push_back(route_.dim(d, w.cuts[static_cast<size_t>(d)]));
  for (const Partial& p : partials_)
    if (w.partial & bit(p.axis)) l.partials.push_back(p);
  return l;
}

int64_t Steps::largest(const Waypoint& w) const {
  if (w.largest < 0) w.largest = route_.largest(w.cuts);
  return w.largest;
}

int64_t Steps::components(const Waypoint& w) const {
  if (!mean_) return 1;
  for (const Partial& p : partials_)
    if ((w.partial & bit(p.axis)) && p.op == ReduceOp::kMean) return 2;
  return 1;
}

AxisMask fillable(std::span<const Partial> want) {
  AxisMask axes = 0;
  std::optional<ReduceOp> kind;
  for (const Partial& p : want) {
    if (p.op == ReduceOp::kAvg || p.op == ReduceOp::kMean) continue;
    if (kind && *kind != p.op) return 0;
    kind = p.op;
    axes |= bit(p.axis);
  }
  return axes;
}

}  // namespace dtensor
