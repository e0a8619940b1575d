// SPDX-License-Identifier: Apache-2.0
// plan() against a brute-force search. Every layout on the way, every group of
// ranks and every sequence of steps is tried here, by this file's own reading
// of what a step needs: which indices a rank has to receive, and whether the
// ranks that differ from it in some axes have them.
#include <gtest/gtest.h>

#include <algorithm>
#include <bitset>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "dtensor/placement/plan.h"

namespace dtensor {
namespace {

using Set = std::bitset<128>;  // of global indices, row-major
constexpr int64_t kFar = std::numeric_limits<int64_t>::max() / 4;

// One ordered list of axes per dimension, and the axes that are partial sums.
struct State {
  std::vector<std::vector<int>> axes;
  AxisMask partial = 0;
  std::vector<Set> held;  // by rank
  bool operator<(const State& o) const {
    return std::tie(axes, partial) < std::tie(o.axes, o.partial);
  }
};

class World {
 public:
  World(const char* mesh, const Shape& shape)
      : mesh_(Mesh::parse(mesh)), shape_(shape) {
    State s;
    s.axes.resize(static_cast<size_t>(shape.size()));
    collect(s, 0);
    for (size_t i = 0; i < states_.size(); ++i) index_[states_[i]] = i;
  }
  const Mesh& mesh() const { return mesh_; }
  size_t size() const { return states_.size(); }
  const Spec* spec(size_t i) const {
    Layout l;
    const State& s = states_[i];
    for (int d = 0; d < shape_.size(); ++d)
      l.dims.push_back(
          Dim(shape_[d], Split::over(s.axes[static_cast<size_t>(d)])));
    for (int a = 0; a < mesh_.num_axes(); ++a)
      if (s.partial >> a & 1) l.partials.push_back({a, ReduceOp::kSum});
    return Spec::get(mesh_, shape_, l, DType::kF32);
  }

  // The least time from every state to `to`.
  std::vector<int64_t> distances(size_t to, const CostTable& cost) const {
    std::vector<int64_t> time(size(), kFar);
    for (size_t i = 0; i < size(); ++i)
      if (fills(states_[i], states_[to])) time[i] = 0;
    const std::vector<std::vector<int64_t>>& step = steps(cost);
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t s = 0; s < size(); ++s)
        for (size_t t = 0; t < size(); ++t)
          if (step[s][t] + time[t] < time[s])
            time[s] = step[s][t] + time[t], changed = true;
    }
    return time;
  }

 private:
  // Every axis in turn: free, partial, or in any place of any dimension.
  void collect(const State& s, int axis) {
    if (axis == mesh_.num_axes()) {
      states_.push_back(s);
      for (int64_t r = 0; r < mesh_.num_ranks(); ++r)
        states_.back().held.push_back(held(s, mesh_.coordinate(r)));
      return;
    }
    collect(s, axis + 1);
    State t = s;
    t.partial |= AxisMask{1} << axis;
    collect(t, axis + 1);
    for (size_t d = 0; d < s.axes.size(); ++d)
      for (size_t at = 0; at <= s.axes[d].size(); ++at) {
        t = s;
        t.axes[d].insert(t.axes[d].begin() + static_cast<ptrdiff_t>(at), axis);
        collect(t, axis + 1);
      }
  }

  Set held(const State& s, const Coord& c) const {
    std::vector<int64_t> indices{0};
    for (int d = 0; d < shape_.size(); ++d) {
      int64_t part = 0, parts = 1, n = shape_[d];
      for (int a : s.axes[static_cast<size_t>(d)]) {
        part = part * mesh_.axis_size(a) + c[a];
        parts *= mesh_.axis_size(a);
      }
      std::vector<int64_t> next;
      for (int64_t outer : indices)
        for (int64_t i = part * n / parts; i < (part + 1) * n / parts; ++i)
          next.push_back(outer * n + i);
      indices = next;
    }
    Set set;
    for (int64_t i : indices) set.set(static_cast<size_t>(i));
    return set;
  }

  // True if s becomes t by only writing identities.
  bool fills(const State& s, const State& t) const {
    if (s.partial & ~t.partial) return false;
    AxisMask fresh = t.partial & ~s.partial;
    for (int64_t r = 0; r < mesh_.num_ranks(); ++r) {
      // Over the new partial axes, the ranks hold all that t has, or disjoint
      // parts of it.
      Coord at = mesh_.coordinate(r);
      AxisMask cut = 0;
      for (int a = 0; a < mesh_.num_axes(); ++a)
        for (const auto& list : s.axes)
          if ((fresh >> a & 1) && std::count(list.begin(), list.end(), a))
            cut |= AxisMask{1} << a;
      Set all;
      size_t total = 0;
      for (int64_t m : mesh_.group(cut, at)) {
        all |= s.held[static_cast<size_t>(m)];
        total += s.held[static_cast<size_t>(m)].count();
      }
      if (all != t.held[static_cast<size_t>(r)] || total != all.count())
        return false;
    }
    return true;
  }

  // True if every rank can get its part of t from ranks that differ from it
  // only in `group`. It needs the summands of the combined axes.
  bool serves(const State& s, const State& t, AxisMask group) const {
    AxisMask combined = s.partial & ~t.partial;
    if (combined & ~group) return false;
    for (int64_t r = 0; r < mesh_.num_ranks(); ++r) {
      Coord at = mesh_.coordinate(r);
      std::map<std::vector<int>, Set> summands;
      for (int64_t m : mesh_.group(group, at)) {
        Coord c = mesh_.coordinate(m);
        std::vector<int> which;
        bool same = true;
        for (int a = 0; a < mesh_.num_axes(); ++a) {
          if (combined >> a & 1) which.push_back(c[a]);
          if ((t.partial >> a & 1) && c[a] != at[a]) same = false;
        }
        if (same) summands[which] |= s.held[static_cast<size_t>(m)];
      }
      for (const auto& [which, has] : summands)
        if ((t.held[static_cast<size_t>(r)] & ~has).any()) return false;
    }
    return true;
  }

  const std::vector<std::vector<int64_t>>& steps(const CostTable& cost) const {
    for (const auto& [table, times] : steps_)
      if (table == cost) return times;
    std::vector<std::vector<int64_t>> times(size(),
                                            std::vector<int64_t>(size(), kFar));
    for (size_t i = 0; i < size(); ++i)
      for (size_t j = 0; j < size(); ++j)
        if (i != j) times[i][j] = step(states_[i], states_[j], cost);
    steps_.push_back({cost, std::move(times)});
    return steps_.back().second;
  }

  int64_t step(const State& s, const State& t, const CostTable& cost) const {
    if (t.partial & ~s.partial) return kFar;
    int64_t q = mesh_.size_of(s.partial & ~t.partial), most = 0;
    for (size_t r = 0; r < s.held.size(); ++r)
      most = std::max(
          most, q * static_cast<int64_t>(t.held[r].count()) -
                    static_cast<int64_t>((t.held[r] & s.held[r]).count()));
    if (numel(shape_) == 0 || (most == 0 && q == 1)) return 0;
    bool all_reduce = s.axes == t.axes;
    if (all_reduce) {  // a reduce-scatter of the flat part and an all-gather
      most = 0;
      for (const Set& part : s.held) {
        auto n = static_cast<int64_t>(part.count());
        for (int64_t i = 0; i < q; ++i) {
          int64_t own = (i + 1) * n / q - i * n / q;
          most = std::max(most, (q - 1) * own + n - own);
        }
      }
    }
    // Try only groups of which no subset serves.
    int64_t best = kFar;
    std::vector<AxisMask> serving;
    for (AxisMask group = 1; group <= mesh_.all_axes(); ++group) {
      bool least = true;
      for (AxisMask g : serving) least &= (g & ~group) != 0;
      if (!least || (all_reduce && group != (s.partial & ~t.partial)) ||
          !serves(s, t, group))
        continue;
      serving.push_back(group);
      best = std::min(best,
                      cost.collective_ps(StepKind::kExchange, group, most * 4));
    }
    return best;
  }

  Mesh mesh_;
  Shape shape_;
  std::vector<State> states_;
  std::map<State, size_t> index_;
  mutable std::vector<std::pair<CostTable, std::vector<std::vector<int64_t>>>>
      steps_;
};

CostTable table(std::vector<std::pair<int64_t, double>> axes) {
  CostTable t;
  for (auto [alpha, rate] : axes) {
    AxisCost c;
    c.alpha_ps = alpha;
    c.ps_per_byte = rate;
    t.axes.push_back(c);
  }
  // The tensors between two steps may have any size.
  t.block_bytes = std::numeric_limits<int64_t>::max();
  return t;
}

void compare(const char* mesh, const Shape& shape, const CostTable& cost,
             size_t every = 1) {
  World w(mesh, shape);
  int64_t pairs = 0, several = 0;
  for (size_t to = 0; to < w.size(); to += every) {
    std::vector<int64_t> least = w.distances(to, cost);
    for (size_t from = 0; from < w.size(); ++from) {
      Plan p = plan(w.spec(from), w.spec(to), cost);
      ASSERT_EQ(p.time_ps, least[from])
          << mesh << " " << w.spec(from)->to_string() << " -> "
          << w.spec(to)->to_string() << ", alpha " << cost.axes[0].alpha_ps;
      ++pairs;
      int collectives = 0;
      for (const Step& s : p.steps) collectives += sends(s.kind);
      several += collectives > 1;
    }
  }
  EXPECT_GT(pairs, 0);
  std::cout << mesh << " " << to_string(shape) << ": " << pairs << " pairs, "
            << several << " of them by several collectives\n";
}

// Latencies of nothing, of about as much as a small tensor's bytes, and of much
// more; and axes with different prices.
std::vector<CostTable> prices(int axes) {
  auto n = static_cast<size_t>(axes);
  std::vector<CostTable> all;
  using Axes = std::vector<std::pair<int64_t, double>>;
  all.push_back(table(Axes(n, {0, 50})));
  all.push_back(table(Axes(n, {300, 50})));
  all.push_back(table(Axes(n, {5'000'000, 50})));
  Axes slow_first, slow_last;
  for (int a = 0; a < axes; ++a) {
    slow_first.push_back({200 * (axes - a), 16 << 2 * (axes - 1 - a)});
    slow_last.push_back({100 * (a + 1), 8 << 3 * a});
  }
  all.push_back(table(slow_first));
  all.push_back(table(slow_last));
  return all;
}

TEST(PlanSearch, OneAxis) {
  for (const CostTable& c : prices(1))
    for (const char* mesh : {"2", "3", "4"}) {
      compare(mesh, {5, 7, 3}, c);
      compare(mesh, {1, 9, 2}, c);
    }
}

TEST(PlanSearch, TwoAxes) {
  for (const CostTable& c : prices(2)) {
    compare("2x2", {5, 7, 3}, c);
    compare("2x3", {4, 6, 4}, c);
    compare("2x4", {1, 9, 2}, c);
    compare("2x4", {8, 16}, c);
    compare("4x2", {8, 8, 2}, c);
    compare("2x2", {0, 4, 4}, c);
  }
}

TEST(PlanSearch, ThreeAxes) {
  for (const CostTable& c : prices(3)) {
    compare("2x2x2", {8, 16}, c, 5);
    compare("2x2x2", {5, 7}, c, 5);
    compare("2x3x2", {12, 6}, c, 7);
  }
}

// With p = 4 summands on a and q = 2 copies on b, one all-reduce receives
// 2 (p-1)/p of n; a slice over b, an all-reduce of the half and an all-gather
// receive (p-1)/p + 1/2 of it in two messages. They cost the same where a
// quarter of n takes as long as one message.
TEST(PlanSearch, SmallTensorsTakeFewerMessagesAndLargeOnesFewerBytes) {
  Mesh mesh = Mesh::parse("a=4,b=2");
  constexpr int64_t kAlpha = 5'000'000, kRate = 50;
  constexpr int64_t kCrossing =
      kAlpha / kRate;  // a quarter of f32: a byte each
  CostTable cost = table({{kAlpha, kRate}, {kAlpha, kRate}});
  int64_t messages = 0, bytes = 0;
  for (int64_t n : {int64_t{8}, int64_t{1024}, kCrossing - 8, kCrossing + 8,
                    8 * kCrossing, 80 * kCrossing}) {
    auto spec = [&](const char* text) {
      return Spec::get(mesh, {n}, parse_layout(text, mesh, {n}), DType::kF32);
    };
    Plan p = plan(spec("P,R"), spec("R,R"), cost);
    messages = bytes = 0;
    for (const Step& s : p.steps) {
      messages += sends(s.kind);
      bytes += s.bytes;
    }
    EXPECT_EQ(messages, n < kCrossing ? 1 : 2) << n;
    EXPECT_EQ(bytes, n < kCrossing ? 6 * n : 5 * n) << n;
    EXPECT_EQ(p.time_ps, messages * kAlpha + bytes * kRate);
  }
}

// Bytes that do not fit into a cache cost more.
TEST(PlanSearch, PricesOfBytesBeyondACache) {
  CostTable c = table({{1000, 20}, {500, 30}});
  c.axes[0].cached_bytes = 64;
  c.axes[0].extra_ps_per_byte = 200;
  c.axes[1].cached_bytes = 16;
  c.axes[1].extra_ps_per_byte = 50;
  compare("2x3", {4, 6, 4}, c);
  compare("2x2", {5, 7}, c);
}

// A group of axes may be cheaper than its axes suggest.
TEST(PlanSearch, PricesOfGroups) {
  CostTable c = table({{1000, 400}, {500, 100}});
  AxisCost both;
  both.alpha_ps = 700;
  both.ps_per_byte = 20;
  c.groups.push_back({0b11, both});
  compare("2x3", {4, 6, 4}, c);
  compare("2x2", {5, 7}, c);
}

// A partial is combined and comes back, in a scalar, or on a dimension that is
// a tree or has listed boundaries, so that no axis can be added to its split.
// The search had no destination to which it could measure the way, and returned
// no step.

TEST(FillOfListedBoundaries, ThePlanArrives) {
  Mesh mesh = Mesh::parse("2x2x2");
  const struct {
    Shape shape;
    const char *from, *to;
  } cases[] = {{{5}, "[{a0}@0|3|5] P{a2:max} P{a1}", "[{a0}@0|3|5] P{a1}"},
               {{5}, "[{a0}@0|3|5] P{a2:max} P{a1}", "[{a0}@0|3|5] P{a1:max}"},
               {{}, "[] P{a1} P{a0:max}", "R,P,R"},
               {{5, 3}, "P(min),S0(1|a=4:a),P", "S1(1|a=2:a),S0(1|a=4:a),P"},
               {{5, 3}, "S0(1|a=4:a),P,P(max)", "S0(1|a=4:a),P(max),P"}};
  for (const auto& c : cases) {
    auto spec = [&](const char* text) {
      return Spec::get(mesh, c.shape, parse_layout(text, mesh, c.shape),
                       DType::kF32);
    };
    Plan p = plan(spec(c.from), spec(c.to), {});
    ASSERT_FALSE(p.steps.empty()) << c.from << " -> " << c.to;
    EXPECT_EQ(p.steps.front().from, spec(c.from));
    EXPECT_EQ(p.steps.back().to, spec(c.to));
    for (size_t i = 1; i < p.steps.size(); ++i)
      EXPECT_EQ(p.steps[i].from, p.steps[i - 1].to);
  }
}

}  // namespace
}  // namespace dtensor
