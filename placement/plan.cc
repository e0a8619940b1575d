// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/plan.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "dtensor/placement/error.h"
#include "dtensor/placement/route.h"
#include "dtensor/placement/search.h"

namespace dtensor {
namespace {

// The most elements that one rank needs under `to` and lacks under `from`. The
// two may be on different meshes.
int64_t lack_between(const Spec* from, const Spec* to) {
  int64_t most = 0;
  for (int64_t r = 0; r < to->mesh().num_ranks(); ++r) {
    Region wants = to->region(to->mesh().coordinate(r));
    int64_t had = from->mesh().mesh_rank_of(to->mesh().world_rank(r));
    int64_t have =
        had < 0 ? 0
                : overlap(from->region(from->mesh().coordinate(had)), wants);
    most = std::max(most, volume(wants) - have);
  }
  return most;
}

Layout without_partials(const Spec* s) {
  Layout l = s->layout();
  l.partials.clear();
  return l;
}

Plan plan_one(const Spec* from, const Spec* to, const CostTable&, int64_t block,
              bool may_chunk);

// Combines partials on the first mesh, moves everything in one exchange, and
// fills partials on the second. To combine, it tries an all-reduce and, for
// each dimension that is a leaf, a reduce-scatter.
Plan plan_between(const Spec* from, const Spec* to, const CostTable& cost) {
  const Spec* arrives = to->with(without_partials(to));
  std::vector<Layout> settled{without_partials(from)};
  std::vector<int> axes;
  for (const Partial& p : from->layout().partials) axes.push_back(p.axis);
  for (size_t d = 0; d < settled[0].dims.size() && !axes.empty(); ++d) {
    const Dim& dim = settled[0].dims[d];
    if (dim.kind() != Dim::Kind::kLeaf) continue;
    Split s = dim.split();
    for (int a : axes) s = s.pushed(from->mesh(), dim.size(), a);
    settled.push_back(settled[0]);
    settled.back().dims[d] = Dim(dim.size(), s);
  }
  AxisMask all = from->mesh().all_axes() | to->mesh().all_axes();
  std::optional<Plan> best;
  for (const Layout& l : settled) {
    const Spec* leaves = from->with(l);
    Plan p =
        plan_one(from, leaves, cost, cost.block_bytes, /*may_chunk=*/false);
    int64_t bytes = lack_between(leaves, arrives) * size_of(to->dtype());
    bool moves = bytes > 0;
    Step step{moves ? StepKind::kExchange : StepKind::kSlice,
              0,
              leaves,
              arrives,
              ReduceOp::kSum,
              bytes,
              0,
              static_cast<int>(p.steps.size())};
    if (moves)
      p.time_ps = std::min(
          kMostPs, p.time_ps + cost.collective_ps(step.kind, all, bytes));
    p.bytes += bytes;
    p.has_collective |= moves;
    p.peak_bytes = std::max(
        p.peak_bytes, from->largest_part_bytes() +
                          (leaves == from ? 0 : leaves->largest_part_bytes()) +
                          arrives->largest_part_bytes());
    p.steps.push_back(step);
    if (arrives != to)
      p.steps.push_back({StepKind::kFill, 0, arrives, to, ReduceOp::kSum, 0, 0,
                         step.round + 1});
    if (!best || p.time_ps < best->time_ps) best = std::move(p);
  }
  return std::move(*best);
}

void check_same_tensor(const Spec* from, const Spec* to) {
  DT_CHECK(from->shape() == to->shape() && from->dtype() == to->dtype(),
           "redistribute",
           "{} cannot become {}, because a move changes only the layout and "
           "the mesh; keep the shape and the dtype",
           from->to_string(), to->to_string());
}

Plan plan_one(const Spec* from, const Spec* to, const CostTable& cost,
              int64_t block, bool may_chunk) {
  if (from == to) return {};
  check_same_tensor(from, to);
  if (from->mesh() != to->mesh()) return plan_between(from, to, cost);
  if (numel(from->shape()) == 0) {
    // There is nothing to combine or to send.
    Plan p;
    p.steps.push_back({StepKind::kSlice, 0, from, to});
    return p;
  }
  return search(from, to, cost, block, may_chunk);
}

// Merges plans: the steps of each plan keep their order. If the next steps of
// several plans are collectives of the same kind, axes and meshes, they become
// one round.
Plan join(std::vector<Plan> plans, const CostTable& cost) {
  Plan all;
  std::vector<size_t> next(plans.size(), 0);
  for (int round = 0;; ++round) {
    const Step* first = nullptr;
    bool local = false;
    for (size_t i = 0; i < plans.size() && !local; ++i) {
      if (next[i] == plans[i].steps.size()) continue;
      const Step& s = plans[i].steps[next[i]];
      local = !sends(s.kind);
      if (!first || local) first = &s;
    }
    if (!first) return all;
    int64_t bytes = 0;
    AxisMask group = first->axes;
    for (size_t i = 0; i < plans.size(); ++i) {
      if (next[i] == plans[i].steps.size()) continue;
      Step s = plans[i].steps[next[i]];
      bool same = s.kind == first->kind && s.axes == first->axes &&
                  s.from->mesh() == first->from->mesh() &&
                  s.to->mesh() == first->to->mesh();
      if (local ? &plans[i].steps[next[i]] != first : !same) continue;
      if (s.from->mesh() != s.to->mesh())
        group = s.from->mesh().all_axes() | s.to->mesh().all_axes();
      s.tensor = static_cast<int>(i);
      s.round = round;
      bytes += s.bytes;
      all.steps.push_back(s);
      ++next[i];
    }
    const Step& s = all.steps.back();
    all.bytes += bytes;
    all.has_collective |= sends(s.kind);
    if (sends(s.kind))
      all.time_ps = std::min(
          kMostPs, all.time_ps + cost.collective_ps(s.kind, group, bytes));
  }
}

}  // namespace

bool one_shot(const Spec* from, const CostTable& cost) {
  return cost.one_shot_bytes > 0 &&
         from->largest_part_bytes() <= cost.one_shot_bytes;
}

Move of_parts(const Move& m) {
  if (!m.from->exact() && !m.to->exact()) return m;
  const auto sums = [](const Spec* s) {
    Layout l = s->layout();
    for (Partial& p : l.partials)
      if (p.op == ReduceOp::kExactSum) p.op = ReduceOp::kSum;
    return Spec::get(s->mesh(), s->shape(), l, DType::kExact);
  };
  return {sums(m.from), sums(m.to)};
}

Plan plan(const Spec* from, const Spec* to, const CostTable& cost) {
  const Move m = of_parts({from, to});
  return plan_one(m.from, m.to, cost, cost.block_bytes, true);
}

QuickPlan quick_plan(const Spec* from, const Spec* to, const CostTable& cost) {
  if (from->mesh() != to->mesh()) return {};
  if (from != to && numel(from->shape()) > 0) {
    const Move m = of_parts({from, to});
    check_same_tensor(m.from, m.to);
    return quick_search(m.from, m.to, cost, cost.block_bytes);
  }
  Plan p = plan(from, to, cost);
  const int64_t time = p.time_ps;
  return {std::move(p), time};
}

Plan plan(std::span<const Move> moves, const CostTable& cost) {
  if (moves.size() == 1) return plan(moves[0].from, moves[0].to, cost);
  // Try two tables: every tensor pays full latencies, or only its share of
  // them.
  CostTable shared = cost;
  auto n = static_cast<int64_t>(std::max<size_t>(moves.size(), 1));
  auto share = [&](AxisCost& c) {
    c.alpha_ps /= n;
    for (auto& k : c.kinds)
      if (k) k->alpha_ps /= n;
  };
  shared.axes.resize(kMaxAxes);
  for (AxisCost& c : shared.axes) share(c);
  for (CostTable::Group& g : shared.groups) share(g.cost);
  std::optional<Plan> best;
  for (const CostTable* table : {&cost, &std::as_const(shared)}) {
    std::vector<Plan> plans;
    int64_t peak = 0;
    for (const Move& given : moves) {
      const Move m = of_parts(given);
      plans.push_back(plan_one(m.from, m.to, *table, cost.block_bytes / n,
                               /*may_chunk=*/false));
      peak += plans.back().peak_bytes;
    }
    Plan p = join(std::move(plans), cost);
    p.peak_bytes = peak;
    if (!best || p.time_ps < best->time_ps) best = std::move(p);
  }
  return std::move(*best);
}

bool only_gathers(const Plan& plan) {
  const auto gathers = [](const Plan& p) {
    return std::all_of(p.steps.begin(), p.steps.end(), [](const Step& s) {
      return !sends(s.kind) || s.kind == StepKind::kAllGather;
    });
  };
  if (gathers(plan)) return true;
  // With equal prices for all axes, no sequence is cheaper than the direct
  // step, so the plan is an all-gather if one can make the move.
  CostTable even;
  even.block_bytes = std::numeric_limits<int64_t>::max();
  return gathers(
      dtensor::plan(plan.steps.front().from, plan.steps.back().to, even));
}

std::optional<int64_t> lower_bound_bytes(const Spec* from, const Spec* to) {
  check_same_tensor(from, to);
  if (from->partial_axes() || to->partial_axes()) return std::nullopt;
  if (from == to) return 0;
  int64_t lack;
  if (from->mesh() == to->mesh()) {
    thread_local Route route;
    route.reset(from, to);
    lack = route.lack(route.from(), route.to(), 1, /*exact=*/true);
  } else {
    lack = lack_between(from, to);
  }
  return lack * size_of(from->dtype());
}

std::string to_string(const Step& s) {
  std::string t(name(s.kind));
  if (s.axes) t += " on " + s.from->mesh().axes_to_string(s.axes);
  return t + ": " + s.from->to_string() + " -> " + s.to->to_string() + ", " +
         std::to_string(s.bytes) + " bytes";
}

}  // namespace dtensor
