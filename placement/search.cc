// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/search.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "dtensor/placement/error.h"
#include "dtensor/placement/prices.h"
#include "dtensor/placement/route.h"
#include "dtensor/placement/step_between.h"

namespace dtensor {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

AxisMask bit(int axis) { return AxisMask{1} << axis; }

// The source, the destination or an intermediate layout.
struct Node : Waypoint {
  bool goal = false;   // the destination, or a partial-fill away from it
  int64_t to_go = -1;  // a lower bound of the price to a goal; -1: not known
  // The best way here so far: its price, collectives and steps.
  int64_t time = kNever;
  int collectives = 0, steps = 0;
  int parent = -1;
  bool open = false;
};

// A sequence of steps, and the most bytes that it holds between source and
// destination.
struct Way {
  Plan plan;
  int64_t between = 0;
  // The time that the search found, and the alphas of the steps. (plan.time_ps
  // may differ: trace() counts exactly, and tries slices before exchanges.)
  int64_t time = 0, alphas = 0;
  bool found = false;
};

// Buffers of a search, kept per thread so that a search allocates little.
struct Scratch {
  Route route;
  std::vector<Node> nodes;
  std::vector<int> open, all, fit;
  std::vector<Cuts> goals;
};
Scratch& scratch() {
  thread_local Scratch scratch;
  return scratch;
}

class Search {
 public:
  Search(const Spec* from, const Spec* to, const CostTable& cost,
         Scratch& scratch)
      : from_(from),
        to_(to),
        cost_(cost),
        mesh_(from->mesh()),
        route_(scratch.route),
        nodes_(scratch.nodes),
        open_(scratch.open),
        all_(scratch.all),
        fit_(scratch.fit),
        goals_(scratch.goals) {
    route_.reset(from, to);
    item_ = size_of(from->dtype());
    // Partials that the destination also has stay, unless their order matters:
    // then all are combined, innermost first.
    const auto &have = from->layout().partials, &want = to->layout().partials;
    auto commuting = [](const std::vector<Partial>& list) {
      for (const Partial& p : list)
        if (!commute(p.op, list[0].op)) return false;
      return true;
    };
    if (commuting(have) && commuting(want))
      for (const Partial& p : have)
        if (to->layout().partial_on(p.axis) == p.op) keep_ |= bit(p.axis);
    in_place_ = fillable(want);
    fill_ = keep_ != to->partial_axes();
    steps_.emplace(route_, from, cost.one_shot_bytes / item_);
  }

  // `block` limits the bytes held in between; if `may_chunk`, those of one
  // chunk of the tensor at a time.
  Plan run(int64_t block, bool may_chunk) {
    block = std::max<int64_t>(block, 1);
    Way best = attempt(1, kNever);
    DT_CHECK(best.found, "redistribute",
             "{} cannot become {}, because no sequence of steps leads to the "
             "partials of the second layout; write a layout without partials",
             from_->to_string(), to_->to_string());
    const int64_t needed = best.between / block + (best.between % block != 0);
    if (needed > 1) {
      // The best way fits in `needed` chunks, which only adds alphas. So no way
      // that takes longer than the best way in chunks is of use.
      const int64_t more_alphas = saturated_ps(
          static_cast<double>(best.alphas) * static_cast<double>(needed - 1));
      const int64_t most = may_chunk ? best.time + more_alphas : kNever;
      Way fits = attempt(1, block, most);
      for (int64_t k = 2; may_chunk;) {
        Way w = attempt(k, k * block, most);
        w.plan.chunks = k;
        if (w.found && (!fits.found || w.plan.time_ps < fits.plan.time_ps))
          fits = std::move(w);
        if (k == needed) break;
        k = std::min(2 * k, needed);
      }
      // With chunks, some way always fits: the best way does in `needed`
      // chunks. Without chunks, it can happen that no way fits, for example if
      // nested partials have different reductions. Then the best way is kept
      // although it exceeds `block`.
      if (fits.found) best = std::move(fits);
    }
    return finished(std::move(best));
  }

  // The plan if no way is cheaper than the direct step and that step keeps the
  // limit `block`; else only a lower bound of the time of any plan.
  QuickPlan quick(int64_t block) {
    Way way = attempt(1, kNever, kNever, /*only_direct=*/true);
    QuickPlan quick;
    quick.least_ps = way.found ? way.plan.time_ps : least_;
    if (way.found && way.between <= std::max<int64_t>(block, 1))
      quick.plan = finished(std::move(way));
    return quick;
  }

 private:
  Plan finished(Way way) const {
    Plan& plan = way.plan;
    bool copies = false;
    for (const Step& s : plan.steps) copies |= s.kind != StepKind::kSlice;
    plan.peak_bytes = from_->largest_part_bytes() +
                      (copies ? to_->largest_part_bytes() : 0) +
                      (way.between + plan.chunks - 1) / plan.chunks;
    return std::move(plan);
  }

  // The cheapest way that pays each alpha `chunks` times, holds at most `limit`
  // bytes in between and takes at most `most` picoseconds. If `only_direct` is
  // set, returns no way if a search is needed; least_ is then a lower bound of
  // the time of any way.
  Way attempt(int64_t chunks, int64_t limit, int64_t most = kNever,
              bool only_direct = false) {
    Prices prices(cost_, mesh_, chunks);
    prices_ = &prices;
    limit_ = limit;
    most_ = most;
    nodes_.clear();
    goals_.clear();
    best_ = -1;
    nodes_.push_back(make(route_.from(), from_->partial_axes()));
    nodes_[0].time = 0;
    if (nodes_[0].goal) return trace(0);
    nodes_.push_back(make(route_.to(), keep_));
    least_ = nodes_[0].partial & ~keep_ ? prices.least_alpha() : 0;
    if (!fill_) {
      // The direct step, which is often the best.
      goals_.push_back(route_.to());
      if (relax(0, 1)) best_ = 1;
      // (If a partial that stays can be filled, a way that combines it and
      // fills it again may be cheaper.)
      if (!(keep_ & in_place_)) {
        least_ = to_go(nodes_[0]);
        if (best_ == 1 && nodes_[1].time <= least_) return trace(1);
      }
    }
    if (only_direct) return {};
    if (!expanded_) route_.expand(few_axes());
    expanded_ = true;
    enumerate(0, route_.from(), 0);
    // Goals come first, because they bound the search.
    std::stable_partition(nodes_.begin() + 2, nodes_.end(),
                          [](const Node& n) { return n.goal; });
    // Ranks receive less under a goal that is split over the axis of a fillable
    // partial (see fillable()). Leave the other goals out if every dimension
    // has cuts over every order of the axes.
    bool maximal = route_.ndim() > 0 && route_.has_all_orders();
    goals_.clear();
    for (Node& n : nodes_) {
      if (n.goal && !(maximal && (in_place_ & ~n.split & ~n.partial)))
        goals_.push_back(n.cuts);
      n.to_go = -1;
    }
    // A layout that does not fit can only be a slice of the source, which needs
    // no memory. (A slice of a slice is also a slice of the source.)
    all_.clear();
    fit_.clear();
    for (int t = 1; t < static_cast<int>(nodes_.size()); ++t) {
      const Node& n = node(t);
      all_.push_back(t);
      if (limit_ == kNever || arrived(n) ||
          steps_->largest(n) * steps_->components(n) * item_ <= limit_)
        fit_.push_back(t);
    }
    open_.assign(1, 0);
    while (!open_.empty()) {
      size_t next = 0;
      for (size_t i = 1; i < open_.size(); ++i)
        if (less(open_[i], open_[next])) next = i;
      int at = open_[next];
      open_[next] = open_.back();
      open_.pop_back();
      Node& n = node(at);
      n.open = false;
      if (n.time + to_go(n) > bound()) break;
      for (const int t : at == 0 ? all_ : fit_) {
        if (t == at || too_far(at, t) || !relax(at, t)) continue;
        if (node(t).goal) {
          if (best_ < 0 || cheaper(node(t), node(best_))) best_ = t;
        } else if (!node(t).open) {
          node(t).open = true;
          open_.push_back(t);
        }
      }
    }
    return best_ < 0 ? Way{} : trace(best_);
  }

  // Whether there are so few axes that every order of them on every dimension
  // can be tried.
  bool few_axes() const {
    int axes = 0;
    for (int a = 0; a < mesh_.num_axes(); ++a) axes += mesh_.axis_size(a) > 1;
    if (axes == 4) return route_.ndim() <= 4 && mesh_.num_ranks() <= 256;
    return axes <= 2 || (axes == 3 && mesh_.num_ranks() <= 1024);
  }

  static bool cheaper(const Node& a, const Node& b) {
    if (a.time != b.time) return a.time < b.time;
    if (a.collectives != b.collectives) return a.collectives < b.collectives;
    return a.steps < b.steps;
  }
  Node& node(int i) { return nodes_[static_cast<size_t>(i)]; }
  // The search drops every way that takes longer than this.
  int64_t bound() { return best_ < 0 ? most_ : node(best_).time; }
  bool less(int a, int b) {
    Node &x = node(a), &y = node(b);
    int64_t f = x.time + to_go(x), g = y.time + to_go(y);
    return f != g ? f < g : a < b;
  }

  Node make(const Cuts& cuts, AxisMask partial) const {
    Node n;
    n.cuts = cuts;
    n.split = route_.axes(cuts);
    n.partial = partial;
    n.goal = !(partial & ~keep_);
    for (int d = 0; d < route_.ndim() && n.goal; ++d) {
      int have = cuts[static_cast<size_t>(d)];
      int want = route_.to()[static_cast<size_t>(d)];
      if (have == want) continue;
      const Cut &x = route_.cut(d, have), &y = route_.cut(d, want);
      // (No partial-fill starts from or leads to a tree: several of its ranks
      // may hold an index, and each of them would contribute it to the result.)
      n.goal = !(x.axes & ~y.axes & ~in_place_) && !x.tree && !y.tree &&
               (route_.common_prefix(d, have, want) == y.num_axes ||
                route_.merges(d, have, want));
    }
    return n;
  }

  // Whether the node is the destination itself, without a partial-fill.
  bool arrived(const Node& n) const {
    return n.goal && n.cuts == route_.to() && n.partial == to_->partial_axes();
  }

  // Adds every layout that cuts each dimension over axes of its own and has any
  // of the source's partials on the other axes.
  void enumerate(int d, Cuts cuts, AxisMask used) {
    if (d == route_.ndim()) {
      AxisMask free = from_->partial_axes() & ~used;
      for (AxisMask p = free;; p = (p - 1) & free) {
        if ((cuts != route_.from() || p != from_->partial_axes()) &&
            (cuts != route_.to() || p != keep_))
          nodes_.push_back(make(cuts, p));
        if (p == 0) break;
      }
      return;
    }
    for (int i = 0; i < route_.num_cuts(d); ++i) {
      AxisMask axes = route_.cut(d, i).axes;
      if (axes & used) continue;
      cuts[static_cast<size_t>(d)] = static_cast<uint16_t>(i);
      enumerate(d + 1, cuts, used | axes);
    }
  }

  int64_t to_go(Node& n) {
    if (n.to_go < 0) n.to_go = compute_to_go(n);
    return n.to_go;
  }
  int64_t compute_to_go(Node& n) const {
    if (n.goal) return 0;
    AxisMask combine = n.partial & ~keep_;
    int64_t q = mesh_.size_of(combine), least = kNever;
    double each = static_cast<double>(numel(from_->shape())) /
                  static_cast<double>(mesh_.num_ranks());
    for (const Cuts& goal : goals_) {
      int64_t lack;
      if (q == 1) {
        lack = route_.lack(n.cuts, goal, 1);
        if (lack == 0 && !combine) return 0;
      } else {
        // Every rank that needs an index receives it, even if it holds one of
        // its summands.
        lack = route_.largest(goal);
        // Ranks receive q - 1 summands of each index before one rank knows the
        // sum, and the other holders then receive the sum. So each index is
        // received at least q + holders - 2 times, and some rank receives at
        // least the average over all ranks.
        if (!(n.partial & keep_)) {
          int64_t holders =
              mesh_.size_of(mesh_.all_axes() & ~route_.axes(goal));
          lack =
              std::max(lack, static_cast<int64_t>(
                                 each * static_cast<double>(q + holders - 2)));
        }
      }
      int64_t bytes = lack * item_, time = prices_->least(bytes);
      if (prices_->differ())
        for (int a = 0; a < mesh_.num_axes(); ++a)
          if (double n_a = crossing(n, combine, goal, a); n_a > 0)
            time = std::max(
                time,
                prices_->least(bytes, each * n_a * static_cast<double>(item_),
                               prices_->of_axis(a)));
      least = std::min(least, time);
    }
    return least;
  }

  // The amount that has to cross axis a: the average number of indices that a
  // rank receives from ranks with another coordinate on that axis, in units of
  // (number of all indices / number of ranks).
  double crossing(const Node& n, AxisMask combine, const Cuts& goal,
                  int a) const {
    double size = static_cast<double>(mesh_.axis_size(a));
    bool ends_split = route_.axes(goal) & bit(a);
    // All summands but one cross, and the result goes to all ranks that lack
    // it.
    if (combine & bit(a)) return (ends_split ? 1 : 2) * (size - 1);
    if (!(n.split & bit(a))) return 0;
    if (!ends_split) return size - 1;
    for (int d = 0; d < route_.ndim(); ++d) {
      const Cut& x = route_.cut(d, n.cuts[static_cast<size_t>(d)]);
      const Cut& y = route_.cut(d, goal[static_cast<size_t>(d)]);
      if (!(x.axes & bit(a)) || x.tree) continue;
      if (y.axes & bit(a)) return 0;  // axis a may cut x and y alike
      int64_t n_d = from_->shape()[d];
      if (n_d == 0) return 0;
      // The ranks with one coordinate on axis a hold at most this share of the
      // dimension. The part that they want is cut along another dimension or by
      // other axes, so they lack the rest of it.
      return 1 - std::min(1.0, static_cast<double>(x.largest * x.parts) / size /
                                   static_cast<double>(n_d));
    }
    return 0;
  }

  // The bytes that a step needs besides the source and the destination.
  int64_t between(int from, int to, const StepBetween& e) {
    const Node &s = node(from), &t = node(to);
    // (A layout that was reached without a collective is the source or a view
    // of it.)
    return steps_->held(s, s.collectives == 0, t, arrived(t), e) * item_;
  }

  // Whether the limit leaves memory for this step. (A new StepBetween is a
  // slice, which needs the least.)
  bool holds(int from, int to, const StepBetween& e) {
    return limit_ == kNever || between(from, to, e) <= limit_;
  }

  // Whether the step may turn out to be a slice: if some parts are empty, ranks
  // may happen to have everything that they need.
  bool may_be_slice(Node& s, Node& t) const {
    return route_.some_part_empty() && s.partial == t.partial &&
           steps_->largest(t) <= steps_->largest(s);
  }

  // Whether the step is useless: a way through `to` takes two more collectives
  // from `from` on, and two cost more than the best way so far. (If only one
  // more collective is cheap enough, only a slice may come before it, and two
  // slices in a row are one slice.)
  bool too_far(int from, int to) {
    Node &s = node(from), &t = node(to);
    if (s.time + to_go(s) + prices_->least_alpha() <= bound()) return false;
    if (to_go(t) == 0) return false;
    if (t.partial != s.partial) return true;
    if (s.parent >= 0 && node(s.parent).collectives == s.collectives)
      return true;
    return route_.some_part_empty() ? steps_->largest(t) > steps_->largest(s)
                                    : (s.split & ~t.split) != 0;
  }

  // Updates `to` if the way through `from` is the best one to it so far.
  // Returns whether it is.
  bool relax(int from, int to) {
    Node &s = node(from), &t = node(to);
    if (t.partial & ~s.partial) return false;
    const int64_t bound = this->bound();
    const int collectives =
        best_ < 0 ? std::numeric_limits<int>::max() : node(best_).collectives;
    int64_t least = s.time + to_go(t);
    if (least > bound ||
        (least == bound && s.collectives + (to_go(t) > 0) >= collectives))
      return false;
    // Most pairs of layouts cost too much whatever the step is.
    const bool combines = t.partial != s.partial;
    if (combines ||
        (!route_.some_part_empty() && (s.split & ~t.split))) {  // it sends
      const int64_t alpha = prices_->least_alpha();
      if (s.time + alpha > std::min(bound, t.time) ||
          (to_go(t) > 0 && s.time + to_go(s) + alpha > bound))
        return false;
    }
    if (!combines) {
      const int64_t few = route_.least_lack(s.cuts, t.cuts, 1);
      if (few > 0 &&
          s.time + prices_->least(few * item_) > std::min(bound, t.time))
        return false;
    }
    StepBetween e;
    if (!holds(from, to, e) || !steps_->between(s, t, e)) return false;
    Node way;
    way.time = s.time;
    way.collectives = s.collectives;
    way.steps = s.steps + 1;
    if (sends(e.kind)) {
      // The bytes that s lacks must come in this step or in a later one, which
      // would be another collective.
      LinkCost link = prices_->link(e.kind, e.group);
      bool dear =
          s.time + prices_->alpha(link) > std::min(bound, t.time) ||
          (to_go(t) > 0 && s.time + to_go(s) + prices_->least_alpha() > bound);
      if (!may_be_slice(s, t) && (dear || !holds(from, to, e))) return false;
      const int64_t few = steps_->least_received(s, t, e);
      if (few > 0 && s.time + prices_->step(e.kind, e.group, few * item_) >
                         std::min(bound, t.time))
        return false;
      int64_t elements = steps_->received(s, t, e, false);
      if (sends(e.kind)) {
        way.time += prices_->step(e.kind, e.group, elements * item_);
        ++way.collectives;
        if (way.time > bound) return false;
      }
    }
    if (!cheaper(way, t)) return false;
    if (!holds(from, to, e)) return false;
    t.time = way.time;
    t.collectives = way.collectives;
    t.steps = way.steps;
    t.parent = from;
    return true;
  }

  const Spec* spec_of(const Node& n) const {
    return arrived(n) ? to_ : from_->with(steps_->layout(n));
  }

  // Collects the steps of the way to a node.
  Way trace(int last) {
    std::vector<int> path;
    for (int at = last; at >= 0; at = node(at).parent) path.push_back(at);
    std::reverse(path.begin(), path.end());
    Way way;
    way.found = true;
    way.time = node(last).time;
    const Spec* at = from_;
    auto push = [&](const StepBetween& e, const Spec* to, int64_t elements) {
      if (to == at) return;  // the two cuts have the same canonical form
      int64_t bytes = elements * item_;
      way.plan.steps.push_back({e.kind, e.group, at, to, e.op, bytes, 0,
                                static_cast<int>(way.plan.steps.size())});
      at = to;
      if (!sends(e.kind)) return;
      way.plan.bytes += bytes;
      way.plan.has_collective = true;
      way.plan.time_ps = std::min(
          kMostPs, way.plan.time_ps + prices_->step(e.kind, e.group, bytes));
    };
    for (size_t i = 1; i < path.size(); ++i) {
      Node &s = node(path[i - 1]), &t = node(path[i]);
      StepBetween e;
      steps_->between(s, t, e);
      int64_t elements = steps_->received(s, t, e, true);
      way.between = std::max(way.between, between(path[i - 1], path[i], e));
      if (sends(e.kind))
        way.alphas = std::min(
            kMostPs,
            way.alphas + prices_->alpha(prices_->link(e.kind, e.group)));
      if (e.kind == StepKind::kExchange ||
          e.kind == StepKind::kReduceExchange) {
        // Slice first, which is free, unless that makes the rest more
        // expensive.
        Waypoint m = steps_->sliced(s, t);
        StepBetween rest;
        if (m.cuts != s.cuts && steps_->between(m, t, rest) &&
            steps_->received(m, t, rest, true) == elements &&
            prices_->step(rest.kind, rest.group, elements * item_) <=
                prices_->step(e.kind, e.group, elements * item_)) {
          push({}, from_->with(steps_->layout(m)), 0);
          e = rest;
        } else if (e.kind == StepKind::kExchange) {
          steps_->share_replicas(s, t, *prices_, e);
        }
      }
      push(e, spec_of(t), elements);
    }
    if (at != to_) {
      StepBetween fill;
      fill.kind = StepKind::kFill;
      push(fill, to_, 0);
    }
    return way;
  }

  const Spec *from_, *to_;
  const CostTable& cost_;
  const Mesh mesh_;
  int64_t item_ = 1;
  AxisMask keep_ = 0, in_place_ = 0;
  bool fill_ = false, expanded_ = false;
  std::optional<Steps> steps_;
  Route& route_;
  Prices* prices_ = nullptr;
  int64_t limit_ = kNever, most_ = kNever, least_ = 0;
  int best_ = -1;
  std::vector<Node>& nodes_;
  std::vector<int>&open_, &all_, &fit_;
  std::vector<Cuts>& goals_;
};

}  // namespace

Plan search(const Spec* from, const Spec* to, const CostTable& cost,
            int64_t block, bool may_chunk) {
  return Search(from, to, cost, scratch()).run(block, may_chunk);
}

QuickPlan quick_search(const Spec* from, const Spec* to, const CostTable& cost,
                       int64_t block) {
  return Search(from, to, cost, scratch()).quick(block);
}

}  // namespace dtensor
