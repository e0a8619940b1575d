#include "dtensor/placement/search.h"

#include <algorithm>
#include <bitset>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "dtensor/placement/error.h"
#include "dtensor/placement/route.h"

namespace dtensor {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

AxisMask bit(int axis) { return AxisMask{1} << axis; }

// A cost table made quick: of kinds that do not differ, each group is looked up
// once.
class Prices {
 public:
  Prices(const CostTable& table, const Mesh& mesh, int chunks)
      : table_(table), chunks_(chunks) {
    for (int a = 0; a < mesh.num_axes(); ++a) {
      if (mesh.axis_size(a) == 1) continue;
      LinkCost& own = of_axis_[static_cast<size_t>(a)];
      lower(own, static_cast<size_t>(a) < table.axes.size()
                     ? table.axes[static_cast<size_t>(a)]
                     : AxisCost{});
      for (const CostTable::Group& g : table.groups)
        if (g.axes & bit(a)) lower(own, g.cost);
      lower(least_, own);
    }
    for (int a = 0; a < mesh.num_axes(); ++a)
      differ_ |=
          mesh.axis_size(a) > 1 && of_axis_[static_cast<size_t>(a)] != least_;
  }
  LinkCost link(StepKind kind, AxisMask axes) {
    if (by_kind_) return table_.link(kind, axes);
    if (!known_[axes]) {
      known_[axes] = true;
      memo_[axes] = table_.link(kind, axes);
    }
    return memo_[axes];
  }
  int64_t step(StepKind kind, AxisMask axes, int64_t bytes) {
    LinkCost c = link(kind, axes);
    return c.alpha_ps * chunks_ +
           std::llround(static_cast<double>(bytes) * c.ps_per_byte);
  }
  int64_t least_alpha() const { return least_.alpha_ps * chunks_; }
  // Does it matter which axes data crosses?
  bool differ() const { return differ_; }
  const LinkCost& of_axis(int a) const {
    return of_axis_[static_cast<size_t>(a)];
  }
  // No sequence of steps that moves `bytes` to some rank, and `crossing` of
  // them over an axis of that price, is cheaper. Steps are rounded one by one,
  // hence the allowance.
  int64_t least(int64_t bytes, double crossing, const LinkCost& axis) const {
    double ps = crossing * axis.ps_per_byte +
                std::max(0.0, static_cast<double>(bytes) - crossing) *
                    least_.ps_per_byte;
    int64_t whole = static_cast<int64_t>(ps);
    if (static_cast<double>(whole) != ps)
      whole = std::max<int64_t>(0, whole - 4);
    return axis.alpha_ps * chunks_ + whole;
  }
  int64_t least(int64_t bytes) const { return least(bytes, 0, least_); }

 private:
  static void lower(LinkCost& to, const LinkCost& c) {
    to.alpha_ps = std::min(to.alpha_ps, c.alpha_ps);
    to.ps_per_byte = std::min(to.ps_per_byte, c.ps_per_byte);
  }
  void lower(LinkCost& to, const AxisCost& c) {
    lower(to, static_cast<const LinkCost&>(c));
    for (const auto& k : c.kinds)
      if (k) {
        by_kind_ = true;
        lower(to, *k);
      }
  }

  static constexpr LinkCost kDearest{kNever / 4, 1e300};
  const CostTable& table_;
  const int chunks_;
  LinkCost least_ = kDearest;
  std::array<LinkCost, kMaxAxes> of_axis_ = [] {
    std::array<LinkCost, kMaxAxes> all;
    all.fill(kDearest);
    return all;
  }();
  bool by_kind_ = false, differ_ = false;
  std::bitset<1 << kMaxAxes> known_;
  std::array<LinkCost, 1 << kMaxAxes> memo_;
};

// A layout on the way.
struct Node {
  Cuts cuts{};
  AxisMask split = 0;
  AxisMask partial = 0;  // of the source's partials, those not yet combined
  bool goal = false;     // the destination, but for a partial-fill
  int64_t to_go = -1;    // no way to a goal costs less; -1: not known yet
  int64_t largest = -1;
  // The best way here: its price, then its collectives, then its steps.
  int64_t time = kNever;
  int collectives = 0, steps = 0;
  int parent = -1;
  bool open = false;
};

// A step between two layouts.
struct Edge {
  StepKind kind = StepKind::kSlice;
  AxisMask group = 0;
  ReduceOp op = ReduceOp::kSum;
};

// A sequence of steps, and the most bytes that lie between source and
// destination on the way.
struct Way {
  Plan plan;
  int64_t between = 0;
  bool found = false;
};

// What a search fills anew; kept per thread.
struct Scratch {
  Route route;
  std::vector<Node> nodes;
  std::vector<int> open;
  std::vector<Cuts> goals;
};

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
        goals_(scratch.goals) {
    route_.reset(from, to);
    item_ = size_of(from->dtype());
    // Partials that the destination has too stay, unless their order matters:
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
    // A split axis that becomes partial: every rank keeps its part among
    // identities, if the identity is one and the same. (An average has none.)
    fill_ = keep_ != to->partial_axes();
    std::optional<ReduceOp> kind;
    for (const Partial& p : want) {
      if (p.op == ReduceOp::kAvg || p.op == ReduceOp::kMean) continue;
      in_place_ = kind && *kind != p.op ? 0 : in_place_ | bit(p.axis);
      if (kind && *kind != p.op) break;
      kind = p.op;
    }
    mean_ = from->components() > 1;
  }

  // `block`: what may lie between; on `may_chunk` for one part of the tensor
  // at a time.
  Plan run(int64_t block, bool may_chunk) {
    block = std::max<int64_t>(block, 1);
    Way best = attempt(1, kNever);
    DT_CHECK(best.found, "redistribute", "{} cannot become {}",
             from_->to_string(), to_->to_string());
    int64_t needed = (best.between + block - 1) / block;
    if (needed > 1) {
      Way fits = attempt(1, block);
      for (int64_t k = 2; may_chunk;) {
        Way w = attempt(k, k * block);
        w.plan.chunks = static_cast<int>(k);
        if (w.found && (!fits.found || w.plan.time_ps < fits.plan.time_ps))
          fits = std::move(w);
        if (k == needed) break;
        k = std::min(2 * k, needed);
      }
      // With chunks there always is one; without, a partial of sums of maxima
      // may have none, and takes the memory that it needs.
      if (fits.found) best = std::move(fits);
    }
    Plan& plan = best.plan;
    bool copies = false;
    for (const Step& s : plan.steps) copies |= s.kind != StepKind::kSlice;
    plan.peak_bytes = from_->largest_part_bytes() +
                      (copies ? to_->largest_part_bytes() : 0) +
                      (best.between + plan.chunks - 1) / plan.chunks;
    return std::move(plan);
  }

 private:
  // The cheapest way with alphas paid `chunks` times, on which at most `limit`
  // bytes lie between source and destination.
  Way attempt(int64_t chunks, int64_t limit) {
    Prices prices(cost_, mesh_, static_cast<int>(chunks));
    prices_ = &prices;
    limit_ = limit;
    nodes_.clear();
    goals_.clear();
    best_ = -1;
    nodes_.push_back(make(route_.from(), from_->partial_axes()));
    nodes_[0].time = 0;
    if (nodes_[0].goal) return trace(0);
    nodes_.push_back(make(route_.to(), keep_));
    if (!fill_) {
      // The direct step, which often no way can beat.
      goals_.push_back(route_.to());
      if (relax(0, 1)) best_ = 1;
      // (A partial that stays may still be combined and filled again.)
      if (best_ == 1 && !(keep_ & in_place_) &&
          nodes_[1].time <= to_go(nodes_[0]))
        return trace(1);
    }
    if (!expanded_) route_.expand(few_axes());
    expanded_ = true;
    enumerate(0, route_.from(), 0);
    // Goals first: they bound the search.
    std::stable_partition(nodes_.begin() + 2, nodes_.end(),
                          [](const Node& n) { return n.goal; });
    // Of goals that differ in what is filled, those that do not have it in
    // place need more: left out, where every dimension could have it in place.
    bool maximal = route_.ndim() > 0 && route_.has_all_orders();
    goals_.clear();
    for (Node& n : nodes_) {
      if (n.goal && !(maximal && (in_place_ & ~n.split & ~n.partial)))
        goals_.push_back(n.cuts);
      n.to_go = -1;
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
      if (best_ >= 0 && n.time + to_go(n) > node(best_).time) break;
      for (int t = 1; t < static_cast<int>(nodes_.size()); ++t) {
        if (t == at || !relax(at, t)) continue;
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

  // Of so few axes that every order of them on every dimension can be tried.
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
      // (A tree may hold an index on several ranks, which would all add it.)
      n.goal = !(x.axes & ~y.axes & ~in_place_) && !x.tree && !y.tree &&
               (route_.common_prefix(d, have, want) == y.num_axes ||
                route_.merges(d, have, want));
    }
    return n;
  }

  // Is it the destination, without a partial-fill?
  bool arrived(const Node& n) const {
    return n.goal && n.cuts == route_.to() && n.partial == to_->partial_axes();
  }

  // Every layout: a cut per dimension over axes of its own, and any of the
  // source's partials on others.
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

  int64_t largest(Node& n) const {
    if (n.largest < 0) n.largest = route_.largest(n.cuts);
    return n.largest;
  }
  // Values per element.
  int64_t components(const Node& n) const {
    if (!mean_) return 1;
    for (const Partial& p : from_->layout().partials)
      if ((n.partial & bit(p.axis)) && p.op == ReduceOp::kMean) return 2;
    return 1;
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
        // Whoever needs an index receives it, whatever it has of it.
        lack = route_.largest(goal);
        // Each index is received by q - 1 ranks before one can know the whole,
        // and by each further holder after that: on average over the ranks.
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

  // How much has to cross an axis: indices that ranks receive from others with
  // another coordinate on it, on average, as a multiple of all indices / ranks.
  double crossing(const Node& n, AxisMask combine, const Cuts& goal,
                  int a) const {
    double size = static_cast<double>(mesh_.axis_size(a));
    bool ends_split = route_.axes(goal) & bit(a);
    // One summand less than there are, and the result to all who lack it.
    if (combine & bit(a)) return (ends_split ? 1 : 2) * (size - 1);
    if (!(n.split & bit(a))) return 0;
    if (!ends_split) return size - 1;
    for (int d = 0; d < route_.ndim(); ++d) {
      const Cut& x = route_.cut(d, n.cuts[static_cast<size_t>(d)]);
      const Cut& y = route_.cut(d, goal[static_cast<size_t>(d)]);
      if (!(x.axes & bit(a)) || x.tree) continue;
      if (y.axes & bit(a)) return 0;  // what it cuts may be the same
      int64_t n_d = from_->shape()[d];
      if (n_d == 0) return 0;
      // A coordinate has at most this share of the dimension before, and wants
      // another part of the tensor after.
      return 1 - std::min(1.0, static_cast<double>(x.largest * x.parts) / size /
                                   static_cast<double>(n_d));
    }
    return 0;
  }

  // What a step between two layouts is called, and its group; false when there
  // is none.
  bool classify(const Node& s, const Node& t, Edge& e) const {
    if (t.partial & ~s.partial) return false;
    AxisMask combined = s.partial & ~t.partial;
    if (combined && !combinable(s.partial, combined, e.op)) return false;
    AxisMask moving = 0, pushed = 0;
    bool refines = true, gathers = true, aligned = true, same_parts = true;
    bool trees = false;
    for (int d = 0; d < route_.ndim(); ++d) {
      int a = s.cuts[static_cast<size_t>(d)],
          b = t.cuts[static_cast<size_t>(d)];
      if (a == b) continue;
      const Cut &x = route_.cut(d, a), &y = route_.cut(d, b);
      int k = route_.common_prefix(d, a, b);
      AxisMask stay = route_.common_axes(d, a, b);
      bool pops = k == y.num_axes && !y.tree,
           pushes = k == x.num_axes && !x.tree;
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
      // (Of a tree several ranks may have an index.)
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

  // May the partials on these axes be combined next, in one collective?
  bool combinable(AxisMask present, AxisMask combined, ReduceOp& op) const {
    const auto& list = from_->layout().partials;
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

  // The most elements that one rank receives in a step. When that is none, and
  // nothing is combined, it is a slice, whatever it looks like.
  int64_t received(Node& s, const Node& t, Edge& e, bool exact) const {
    if (!sends(e.kind)) return 0;
    int64_t n = components(s);
    if (e.kind == StepKind::kAllReduce)
      return all_reduce_elements(
          n * largest(s), mesh_.size_of(e.group),
          n * largest(s) * item_ <= cost_.one_shot_bytes);
    AxisMask combined = s.partial & ~t.partial;
    int64_t q = mesh_.size_of(combined);
    int64_t lack = route_.lack(s.cuts, t.cuts, q, exact);
    if (lack == 0 && !combined) {
      lack = route_.lack(s.cuts, t.cuts, q, true);
      if (lack == 0) e = {};
    }
    return n * lack;
  }

  // Bytes that a step needs besides source and destination.
  int64_t between(int from, Node& t, const Edge& e) {
    Node& s = node(from);
    bool source = s.collectives == 0;  // or a view of it
    bool destination = arrived(t);
    int64_t n = source ? 0 : largest(s) * components(s);
    if (sends(e.kind) && components(s) > components(t)) n += 2 * largest(t);
    if (!destination && (sends(e.kind) || !source))
      n += largest(t) * components(t);
    return n * item_;
  }

  // Where parts are empty, ranks may happen to have all that they need.
  bool may_be_slice(Node& s, Node& t) const {
    return route_.some_part_empty() && s.partial == t.partial &&
           largest(t) <= largest(s);
  }

  // Is the way to `to` over `from` the best so far?
  bool relax(int from, int to) {
    Node &s = node(from), &t = node(to);
    if (t.partial & ~s.partial) return false;
    int64_t bound = kNever, collectives = 0;
    if (best_ >= 0)
      bound = node(best_).time, collectives = node(best_).collectives;
    int64_t least = s.time + to_go(t);
    if (least > bound ||
        (least == bound && s.collectives + (to_go(t) > 0) >= collectives))
      return false;
    Edge e;
    if (!classify(s, t, e)) return false;
    Node way;
    way.time = s.time;
    way.collectives = s.collectives;
    way.steps = s.steps + 1;
    if (sends(e.kind)) {
      // What s lacks has to come in this step or later, and later means
      // another collective.
      LinkCost link = prices_->link(e.kind, e.group);
      bool dear =
          s.time + link.alpha_ps > std::min(bound, t.time) ||
          (to_go(t) > 0 && s.time + to_go(s) + prices_->least_alpha() > bound);
      if (dear && !may_be_slice(s, t)) return false;
      int64_t elements = received(s, t, e, false);
      if (sends(e.kind)) {
        way.time += prices_->step(e.kind, e.group, elements * item_);
        ++way.collectives;
        if (way.time > bound) return false;
      }
    }
    if (!cheaper(way, t)) return false;
    if (limit_ != kNever && between(from, t, e) > limit_) return false;
    t.time = way.time;
    t.collectives = way.collectives;
    t.steps = way.steps;
    t.parent = from;
    return true;
  }

  const Spec* spec_of(const Node& n) const {
    if (arrived(n)) return to_;
    Layout l;
    for (int d = 0; d < route_.ndim(); ++d)
      l.dims.push_back(route_.dim(d, n.cuts[static_cast<size_t>(d)]));
    for (const Partial& p : from_->layout().partials)
      if (n.partial & bit(p.axis)) l.partials.push_back(p);
    return from_->with(l);
  }

  // The steps of the way to a node.
  Way trace(int last) {
    std::vector<int> path;
    for (int at = last; at >= 0; at = node(at).parent) path.push_back(at);
    std::reverse(path.begin(), path.end());
    Way way;
    way.found = true;
    const Spec* at = from_;
    auto push = [&](const Edge& e, const Spec* to, int64_t elements) {
      if (to == at) return;  // cuts that differ only in the order of no parts
      int64_t bytes = elements * item_;
      way.plan.steps.push_back({e.kind, e.group, at, to, e.op, bytes, 0,
                                static_cast<int>(way.plan.steps.size())});
      at = to;
      if (!sends(e.kind)) return;
      way.plan.bytes += bytes;
      way.plan.sends_ = true;
      way.plan.time_ps += prices_->step(e.kind, e.group, bytes);
    };
    for (size_t i = 1; i < path.size(); ++i) {
      Node &s = node(path[i - 1]), &t = node(path[i]);
      Edge e;
      classify(s, t, e);
      int64_t elements = received(s, t, e, true);
      way.between = std::max(way.between, between(path[i - 1], t, e));
      if (e.kind == StepKind::kExchange ||
          e.kind == StepKind::kReduceExchange) {
        // What is free first, if the rest costs no more for it.
        Node m = sliced(s, t);
        Edge rest;
        if (m.cuts != s.cuts && classify(m, t, rest) &&
            received(m, t, rest, true) == elements &&
            prices_->step(rest.kind, rest.group, elements * item_) <=
                prices_->step(e.kind, e.group, elements * item_)) {
          push({}, spec_of(m), 0);
          e = rest;
        } else if (e.kind == StepKind::kExchange) {
          share_replicas(s, t, e);
        }
      }
      push(e, spec_of(t), elements);
    }
    if (at != to_) {
      Edge fill;
      fill.kind = StepKind::kFill;
      push(fill, to_, 0);
    }
    return way;
  }

  // s cut further wherever t only cuts further, over axes that s leaves free.
  Node sliced(const Node& s, const Node& t) const {
    Node m = s;
    m.goal = false;
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

  // Axes over which s is replicated and t is not: who differs in them can
  // serve too, and does if that costs nothing.
  void share_replicas(const Node& s, const Node& t, Edge& e) {
    for (int a = 0; a < mesh_.num_axes(); ++a) {
      if (!(t.split & ~s.split & ~s.partial & ~e.group & bit(a))) continue;
      LinkCost with = prices_->link(e.kind, e.group | bit(a));
      LinkCost without = prices_->link(e.kind, e.group);
      if (with.alpha_ps <= without.alpha_ps &&
          with.ps_per_byte <= without.ps_per_byte)
        e.group |= bit(a);
    }
  }

  const Spec *from_, *to_;
  const CostTable& cost_;
  const Mesh mesh_;
  int64_t item_ = 1;
  AxisMask keep_ = 0, in_place_ = 0;
  bool fill_ = false, mean_ = false, expanded_ = false;
  Route& route_;
  Prices* prices_ = nullptr;
  int64_t limit_ = kNever;
  int best_ = -1;
  std::vector<Node>& nodes_;
  std::vector<int>& open_;
  std::vector<Cuts>& goals_;
};

}  // namespace

Plan search(const Spec* from, const Spec* to, const CostTable& cost,
            int64_t block, bool may_chunk) {
  thread_local Scratch scratch;
  return Search(from, to, cost, scratch).run(block, may_chunk);
}

}  // namespace dtensor
