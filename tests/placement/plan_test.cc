// SPDX-License-Identifier: Apache-2.0
// Plans against a simulator: every pair of layouts on small meshes. The steps
// are carried out here on sets of indices and small integers, by this file's
// own reading of what each kind of step means and what it moves.
#include "dtensor/placement/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

using Values = std::vector<int64_t>;  // by global index in row-major order
constexpr int64_t kAbsent = int64_t{1} << 60;
constexpr int64_t kItem = 4;  // bytes of an f32

int64_t identity_of(ReduceOp op) { return op == ReduceOp::kMax ? -100000 : 0; }

// The sum of an average's parts must be a multiple of their number.
int64_t combine(ReduceOp op, const Values& parts) {
  if (op == ReduceOp::kMax)
    return *std::max_element(parts.begin(), parts.end());
  int64_t sum = std::accumulate(parts.begin(), parts.end(), int64_t{0});
  if (op == ReduceOp::kSum) return sum;
  auto p = static_cast<int64_t>(parts.size());
  EXPECT_EQ(sum % p, 0);
  return sum / p;
}

// For each rank, 1 for every index that it holds, and 0 for the others.
// Balanced splits are computed here from the axes alone.
const std::vector<Values>& held_by(const Spec* spec) {
  static auto* cache = new std::map<SpecRef, std::vector<Values>>;
  auto [it, fresh] = cache->try_emplace(spec);
  if (!fresh) return it->second;
  const Mesh& mesh = spec->mesh();
  for (int64_t r = 0; r < mesh.num_ranks(); ++r) {
    Coord c = mesh.coordinate(r);
    Values has{1};
    for (int d = 0; d < spec->ndim(); ++d) {
      int64_t n = spec->shape()[d], part = 0, parts = 1;
      Values in(static_cast<size_t>(n), 0), next;
      const Split& s = spec->dim(d).split();
      for (int a : s.axes()) {
        part = part * mesh.axis_size(a) + c[a];
        parts *= mesh.axis_size(a);
      }
      if (s.points() || s.granule() > 1 ||
          spec->dim(d).kind() != Dim::Kind::kLeaf) {
        IntervalList ranges;
        spec->dim(d).intervals(mesh, c, ranges);
        for (const Interval& x : ranges)
          for (int64_t i = x.lo; i < x.hi; ++i) in[static_cast<size_t>(i)] = 1;
      } else {
        for (int64_t i = part * n / parts; i < (part + 1) * n / parts; ++i)
          in[static_cast<size_t>(i)] = 1;
      }
      for (int64_t outer : has)
        for (int64_t inner : in) next.push_back(outer * inner);
      has = next;
    }
    it->second.push_back(has);
  }
  return it->second;
}

int64_t count(const Values& v) {
  return std::count(v.begin(), v.end(), int64_t{1});
}

// The parts of a number combine to it: v = 3v - 2v = 3v - 4v + 2v. For max, one
// part is v and the others are smaller. Which part is v depends on the index
// and on the outer partials, so that maxima of sums are not sums of maxima.
int64_t part_of(int64_t v, size_t index, const std::vector<Partial>& partials,
                const Mesh& mesh, const Coord& c) {
  auto salt = static_cast<int64_t>(index);
  for (const Partial& p : partials) {
    int64_t size = mesh.axis_size(p.axis), at = c[p.axis];
    if (p.op != ReduceOp::kMax) {
      const int64_t two[] = {3, -2}, three[] = {3, -4, 2};
      const int64_t four[] = {3, -4, 7, -5};
      v *= size == 2 ? two[at] : size == 3 ? three[at] : four[at];
      if (p.op == ReduceOp::kAvg) v *= size;
    } else {
      at = (at + salt) % size;
      v -= at * (at + 1);
    }
    salt += c[p.axis] + 1;
  }
  return v;
}

// The value of an index from the parts: innermost partials first.
int64_t whole_of(const std::vector<Values>& state, size_t index,
                 const std::vector<Partial>& partials, size_t level,
                 const Mesh& mesh, Coord c) {
  if (level == partials.size())
    return state[static_cast<size_t>(mesh.rank(c))][index];
  const Partial& p = partials[level];
  Values parts;
  for (int i = 0; i < mesh.axis_size(p.axis); ++i) {
    c[p.axis] = i;
    parts.push_back(whole_of(state, index, partials, level + 1, mesh, c));
  }
  return combine(p.op, parts);
}

class Simulator {
 public:
  Simulator(const Spec* from, const Spec* to)
      : mesh_(from->mesh()), from_(from), to_(to) {
    int64_t n = numel(from->shape());
    for (int64_t i = 0; i < n; ++i) global_.push_back((i * 7 + 5) % 23 - 8);
    for (int64_t r = 0; r < mesh_.num_ranks(); ++r) {
      Values v(static_cast<size_t>(n), kAbsent);
      for (size_t i = 0; i < v.size(); ++i)
        if (held_by(from)[static_cast<size_t>(r)][i])
          v[i] = part_of(global_[i], i, from->layout().partials, mesh_,
                         mesh_.coordinate(r));
      state_.push_back(v);
    }
  }

  // Returns "" if the plan is right.
  std::string run(const Plan& plan) {
    const Spec* at = from_;
    int64_t bytes = 0;
    bool sends = false;
    for (const Step& s : plan.steps) {
      if (s.from != at) return "steps do not chain";
      if (s.to == at) return "a step that does nothing";
      int64_t most = 0;
      std::string bad = step(s, most);
      if (!bad.empty()) return to_string(s) + ": " + bad;
      if (s.bytes != most * kItem)
        return to_string(s) + ": counted " + std::to_string(most * kItem);
      bytes += s.bytes;
      sends |= s.axes != 0;
      at = s.to;
    }
    if (at != to_) return "does not arrive";
    if (plan.bytes != bytes) return "bytes are not the sum of the steps";
    if (plan.communicates() != sends) return "communicates() is wrong";
    for (size_t r = 0; r < state_.size(); ++r)
      for (size_t i = 0; i < global_.size(); ++i) {
        bool has = state_[r][i] != kAbsent;
        if (has != (held_by(to_)[r][i] == 1)) return "owners are wrong";
        if (has &&
            whole_of(state_, i, to_->layout().partials, 0, mesh_,
                     mesh_.coordinate(static_cast<int64_t>(r))) != global_[i])
          return "values are wrong";
      }
    return "";
  }

 private:
  std::string step(const Step& s, int64_t& most) {
    std::vector<Values> next = state_;
    const auto &old_held = held_by(s.from), &new_held = held_by(s.to);
    AxisMask gone = s.from->partial_axes() & ~s.to->partial_axes();
    AxisMask come = s.to->partial_axes() & ~s.from->partial_axes();
    bool reduces = s.kind == StepKind::kAllReduce ||
                   s.kind == StepKind::kReduceScatter ||
                   s.kind == StepKind::kReduceExchange;
    if (global_.empty()) {  // nothing to send or to combine
      most = 0;
      state_ = next;
      return s.axes ? "sends nothing in vain" : "";
    }
    if (reduces ? !gone || (gone & ~s.axes) : gone != 0) return "partials went";
    if (reduces && s.kind != StepKind::kReduceExchange && gone != s.axes)
      return "a group too large";
    if (s.kind != StepKind::kFill && come) return "partials came";
    for (const Partial& p : s.from->layout().partials) {
      if (!(gone >> p.axis & 1)) {
        if (s.to->layout().partial_on(p.axis) != p.op) return "partial changed";
      } else if (p.op != s.op) {
        return "a partial is reduced by another operation";
      }
    }
    bool free = s.kind == StepKind::kSlice || s.kind == StepKind::kFill;
    if (free != (s.axes == 0)) return "has a group, or lacks one";
    for (int64_t r = 0; r < mesh_.num_ranks(); ++r) {
      auto rank = static_cast<size_t>(r);
      Coord c = mesh_.coordinate(r);
      std::vector<int64_t> group = mesh_.group(s.axes, c);
      auto p = static_cast<int64_t>(group.size());
      const Values &old = old_held[rank], &want = new_held[rank];
      int64_t received = 0, holders = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        int64_t& out = next[rank][i];
        if (s.kind == StepKind::kReduceScatter && old[i]) {
          holders = 0;
          for (int64_t m : group) holders += new_held[size_t(m)][i];
          if (holders != 1) return "a reduced part has not one owner";
        }
        if (!want[i]) {
          out = kAbsent;
          continue;
        }
        if (s.kind == StepKind::kFill) {
          out = filled(s, c, i);
        } else if (reduces) {
          // Trees may hold several copies; take one of them.
          std::map<std::vector<int>, int64_t> summand;
          for (int64_t m : group) {
            if (!old_held[size_t(m)][i]) continue;
            std::vector<int> which;
            Coord o = mesh_.coordinate(m);
            for (int a = 0; a < mesh_.num_axes(); ++a)
              if (gone >> a & 1) which.push_back(o[a]);
            summand[which] = state_[size_t(m)][i];
          }
          Values parts;
          for (const auto& [which, value] : summand) parts.push_back(value);
          auto summands = static_cast<int64_t>(parts.size());
          if (summands != mesh_.size_of(gone))
            return "a part to reduce is missing, or there twice";
          out = combine(s.op, parts);
          received += summands - old[i];
        } else if (!old[i]) {
          if (free) return "a slice needs what is not here";
          out = kAbsent;
          for (int64_t m : group)
            if (old_held[size_t(m)][i]) out = state_[size_t(m)][i];
          if (out == kAbsent) return "nobody in the group has what is needed";
          ++received;
        }
      }
      if (s.kind == StepKind::kAllGather)
        for (size_t i = 0; i < want.size(); ++i) {
          bool somewhere = false;
          for (int64_t m : group) somewhere |= old_held[size_t(m)][i] == 1;
          if (somewhere != (want[i] == 1)) return "gathers too much or little";
        }
      if (s.kind == StepKind::kAllReduce) {
        // A reduce-scatter of flat chunks, then an all-gather of them.
        if (old != want) return "an all-reduce changes who has what";
        int64_t n = count(old);
        received = 0;
        for (int64_t i = 0; i < p; ++i) {
          int64_t chunk = (i + 1) * n / p - i * n / p;
          received = std::max(received, (p - 1) * chunk + n - chunk);
        }
      }
      most = std::max(most, received);
    }
    state_ = next;
    return "";
  }

  // The value that a rank holds after a partial-fill: the value if it is the
  // owner, else the identity of the outermost new partial in which it is not.
  // The parts of an average are all the value.
  int64_t filled(const Step& s, const Coord& c, size_t i) {
    const auto& partials = s.to->layout().partials;
    AxisMask fresh = s.to->partial_axes() & ~s.from->partial_axes();
    for (const Partial& p : partials)
      if (p.op == ReduceOp::kAvg) fresh &= ~(AxisMask{1} << p.axis);
    // If a part stays among other ranks' identities, these must be one
    // identity.
    for (const Partial& p : partials)
      for (const Partial& q : partials)
        if ((fresh & s.from->split_axes()) && (fresh >> p.axis & 1) &&
            (fresh >> q.axis & 1) && p.op != q.op)
          return kAbsent;
    for (int64_t m : mesh_.group(fresh, c)) {
      Coord o = mesh_.coordinate(m);
      if (!held_by(s.from)[static_cast<size_t>(m)][i]) continue;
      bool owner = true;
      for (const Partial& p : partials)
        owner &= !(fresh >> p.axis & 1) || o[p.axis] == 0 ||
                 (s.from->split_axes() >> p.axis & 1);
      if (!owner) continue;
      for (const Partial& p : partials)
        if (o[p.axis] != c[p.axis] && (fresh >> p.axis & 1))
          return identity_of(p.op);
      return state_[static_cast<size_t>(m)][i];
    }
    return kAbsent;
  }

  const Mesh mesh_;
  const Spec *from_, *to_;
  Values global_;
  std::vector<Values> state_;
};

// Every rank must receive what it needs and does not have.
int64_t lower_bound(const Spec* from, const Spec* to) {
  int64_t most = 0;
  for (size_t r = 0; r < held_by(from).size(); ++r) {
    int64_t lacks = 0;
    for (size_t i = 0; i < held_by(from)[r].size(); ++i)
      lacks += held_by(to)[r][i] && !held_by(from)[r][i];
    most = std::max(most, lacks);
  }
  return most * kItem;
}

std::string verdict(const Spec* from, const Spec* to) {
  Plan p = plan(from, to, {});
  std::string bad = Simulator(from, to).run(p);
  if (bad.empty() && !from->partial_axes() && !to->partial_axes() &&
      p.bytes != lower_bound(from, to))
    bad = "lower bound is " + std::to_string(lower_bound(from, to)) +
          " bytes, planned " + std::to_string(p.bytes);
  if (bad.empty()) return "";
  for (const Step& s : p.steps) bad += "\n  " + to_string(s);
  return from->mesh().to_string() + " " + from->to_string() + " -> " +
         to->to_string() + ": " + bad;
}

const Spec* spec(const char* mesh, const char* shape, std::string_view text) {
  Mesh m = Mesh::parse(mesh);
  Shape s = parse_shape(shape, "test");
  return Spec::get(m, s, parse_layout(text, m, s), DType::kF32);
}

void every_pair(const char* mesh_text, const char* shape_text) {
  Mesh mesh = Mesh::parse(mesh_text);
  std::vector<std::string> texts{""};
  for (int a = 0; a < mesh.num_axes(); ++a) {
    std::vector<std::string> longer;
    for (const std::string& t : texts)
      for (const char* p : {"R", "S0", "S1", "P", "P(max)", "P(avg)"})
        longer.push_back(t + (t.empty() ? "" : ",") + p);
    texts = longer;
  }
  std::vector<SpecRef> specs;
  for (const std::string& t : texts)
    specs.push_back(spec(mesh_text, shape_text, t));
  int bad = 0;
  // On meshes of three axes, a fifth of the 46,656 pairs.
  size_t step = mesh.num_axes() > 2 ? 5 : 1, at = 0;
  for (const Spec* from : specs)
    for (const Spec* to : specs) {
      if (at++ % step) continue;
      std::string v = verdict(from, to);
      if (!v.empty() && ++bad <= 5) ADD_FAILURE() << v;
    }
  EXPECT_EQ(bad, 0) << "of " << (at + step - 1) / step << " pairs";
}

class EveryPair : public testing::TestWithParam<const char*> {};

TEST_P(EveryPair, MovesTheRightValuesAndCountsItsBytes) {
  for (const char* shape : {"5x7", "1x9", "0x4", "4x6"})
    every_pair(GetParam(), shape);
}

INSTANTIATE_TEST_SUITE_P(Meshes, EveryPair,
                         testing::Values("4", "2x2", "2x3", "2x2x2"));

// Splits in any order of axes, with granules and listed boundaries, and in
// half of the trials partials on other axes, in any order.
TEST(Plan, ArbitraryLayouts) {
  std::mt19937 gen(7);
  auto below = [&](int64_t n) {
    return static_cast<int64_t>(gen() % static_cast<uint64_t>(n));
  };
  const char* meshes[] = {"2x2", "2x3", "4", "2x2x2", "3x2"};
  for (int trial = 0; trial < 8000; ++trial) {
    Mesh mesh = Mesh::parse(meshes[below(5)]);
    Shape shape{1 + below(9), 6 * below(3)};
    auto random = [&] {
      std::vector<std::vector<int>> axes(2);
      std::vector<int> order;
      for (int a = 0; a < mesh.num_axes(); ++a) order.push_back(a);
      std::shuffle(order.begin(), order.end(), gen);
      Layout l;
      for (int a : order) {
        const ReduceOp ops[] = {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kAvg};
        if (int64_t d = below(4); d < 2)
          axes[static_cast<size_t>(d)].push_back(a);
        else if (d == 2 && trial % 2)
          l.partials.push_back({a, ops[below(3)]});
      }
      for (int d = 0; d < 2; ++d) {
        const auto& list = axes[static_cast<size_t>(d)];
        Split s = Split::over(list, d == 1 && below(3) == 0 ? 3 : 1);
        if (!list.empty() && below(4) == 0) {
          std::vector<int64_t> points{0, shape[d]};
          for (int64_t i = 1; i < s.parts(mesh); ++i)
            points.push_back(below(shape[d] + 1));
          std::sort(points.begin(), points.end());
          s = Split::at(list, points, mesh);
        }
        l.dims.push_back(Dim(shape[d], s));
      }
      return Spec::get(mesh, shape, l, DType::kF32);
    };
    const Spec *from = random(), *to = random();
    ASSERT_EQ(verdict(from, to), "");
  }
}

// Trees, as views of split dimensions make them.
TEST(Plan, ProductsAndConcatsMeetTheLowerBound) {
  Mesh mesh = Mesh::parse("2x2");
  std::vector<Dim> dims = {
      Dim(12),
      Dim(12, Split::over({0})),
      Dim(12, Split::over({1, 0})),
      Dim::product({Dim(3), Dim(4, Split::over({0}))}),
      Dim::product({Dim(2, Split::over({1})), Dim(6, Split::over({0}))}),
      Dim::concat({Dim(5, Split::over({0})), Dim(7, Split::over({0}))}),
      Dim::concat({Dim(8, Split::over({0}, 2)), Dim(2, Split::over({0})),
                   Dim(2, Split::over({0}))}),
      Dim::concat({Dim(5), Dim(7, Split::over({0}))})};
  std::vector<SpecRef> specs;
  for (const Dim& d : dims) {
    specs.push_back(Spec::get(mesh, {12, 3}, {{d, Dim(3)}, {}}, DType::kF32));
    // With partials on the axes that do not split it.
    for (int a : {0, 1})
      for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax})
        if (!(d.axes() >> a & 1))
          specs.push_back(
              Spec::get(mesh, {12, 3}, {{d, Dim(3)}, {{a, op}}}, DType::kF32));
  }
  for (const Spec* from : specs)
    for (const Spec* to : specs) EXPECT_EQ(verdict(from, to), "");
}

std::string kinds(const char* mesh, const char* shape, const char* from,
                  const char* to) {
  std::string t;
  for (const Step& s :
       plan(spec(mesh, shape, from), spec(mesh, shape, to), {}).steps) {
    t += t.empty() ? "" : " ";
    t += name(s.kind);
    if (s.axes) t += "@" + s.from->mesh().axes_to_string(s.axes);
  }
  return t;
}

TEST(Plan, OneCollectiveOnOneAxis) {
  EXPECT_EQ(kinds("3", "5x7", "S0", "R"), "all-gather@a0");
  EXPECT_EQ(kinds("3", "5x7", "S0", "S1"), "all-to-all@a0");
  EXPECT_EQ(kinds("3", "5x7", "R", "S1"), "slice");
  EXPECT_EQ(kinds("3", "5x7", "P", "R"), "all-reduce@a0");
  EXPECT_EQ(kinds("3", "5x7", "P(max)", "S1"), "reduce-scatter@a0");
  EXPECT_EQ(kinds("3", "5x7", "R", "P"), "partial-fill");
  EXPECT_EQ(kinds("3", "5x7", "S0", "P"), "partial-fill");
  EXPECT_EQ(kinds("3", "5x7", "S0", "S0"), "");
}

TEST(Plan, CasesThatOthersGetWrong) {
  // One exchange on the inner axis alone.
  EXPECT_EQ(kinds("2x2", "4x4x4", "S1,S1", "S1,S2"), "all-to-all@a1");
  // The split over (a0, a1) is not the one over a1.
  EXPECT_EQ(kinds("2x2", "5x3", "S0,S0", "R,S0"), "exchange@a0,a1");
  EXPECT_EQ(kinds("2x2", "5x3", "S0,S0", "S0,R"), "all-gather@a1");
  EXPECT_EQ(kinds("2x2", "5x3", "S0,P", "S0,S0"), "reduce-scatter@a1");
  // Neighbouring partials of one kind are combined together, others never.
  EXPECT_EQ(kinds("2x2", "5x3", "P,P", "R,R"), "all-reduce@a0,a1");
  EXPECT_EQ(kinds("2x2", "5x3", "P,P(max)", "R,R"),
            "all-reduce@a1 all-reduce@a0");
  EXPECT_EQ(kinds("2x2x2", "5x3", "P,P,P", "R,P,R"), "all-reduce@a0,a2");
}

TEST(Plan, AllReduceIsReduceScatterPlusAllGather) {
  EXPECT_EQ(all_reduce_elements(10, 1), 0);
  EXPECT_EQ(all_reduce_elements(8, 2), 8);
  EXPECT_EQ(all_reduce_elements(10, 4), 3 * 3 + 7);
  EXPECT_EQ(all_reduce_elements(1, 4), 3);
  EXPECT_EQ(all_reduce_elements(0, 4), 0);
  EXPECT_EQ(all_reduce_elements(10, 4, true), 30);
  EXPECT_EQ(all_reduce_elements(10, 1, true), 0);
}

TEST(Plan, TimeIsThePriceOfItsCollectives) {
  CostTable cost;
  cost.axes.resize(2);
  cost.axes[0].alpha_ps = 1000, cost.axes[0].ps_per_byte = 2;
  cost.axes[1].alpha_ps = 500, cost.axes[1].ps_per_byte = 10;
  Plan p = plan(spec("2x2", "5x7", "S0,P"), spec("2x2", "5x7", "R,R"), cost);
  int64_t sum = 0;
  for (const Step& s : p.steps)
    sum += cost.collective_ps(s.kind, s.axes, s.bytes);
  EXPECT_EQ(p.time_ps, sum);
  EXPECT_GT(sum, 0);
  EXPECT_EQ(plan(spec("2", "4", "R"), spec("2", "4", "S0"), cost).time_ps, 0);
}

// A plan that quick_plan() finds without a search is the best one. If it finds
// none, its bound holds for the best one.
TEST(Plan, QuickPlansAndTheirBounds) {
  const CostTable cost;
  int quick = 0, bounded = 0;
  for (const char* from : {"R,R", "S0,R", "S0,S1", "S1,S0", "P,S0", "P,P"})
    for (const char* to : {"R,R", "S0,R", "S1,R", "S0,S1", "S1,S0", "R,S0"}) {
      const Spec *a = spec("2x3", "5x7", from), *b = spec("2x3", "5x7", to);
      const QuickPlan found = quick_plan(a, b, cost);
      const int64_t best = plan(a, b, cost).time_ps;
      EXPECT_LE(found.least_ps, best) << from << " to " << to;
      if (found.plan) {
        EXPECT_EQ(found.plan->time_ps, best) << from << " to " << to;
        EXPECT_EQ(found.least_ps, best) << from << " to " << to;
      }
      ++(found.plan ? quick : bounded);
    }
  EXPECT_GT(quick, 0);
  EXPECT_GT(bounded, 0);
  // Between two meshes there is neither a plan nor a bound.
  const QuickPlan none =
      quick_plan(spec("2x3", "5x7", "R,R"), spec("6", "5x7", "R"), cost);
  EXPECT_FALSE(none.plan);
  EXPECT_EQ(none.least_ps, 0);
}

TEST(Plan, SmallPartsAreReducedInOneStep) {
  CostTable cost;
  cost.one_shot_bytes = 40;
  EXPECT_TRUE(one_shot(spec("2", "10", "P"), cost));
  EXPECT_FALSE(one_shot(spec("2", "11", "P"), cost));
  EXPECT_TRUE(one_shot(spec("2x2", "20", "S0,P"), cost));
  // The largest part of any rank decides, here 11 of 21 elements.
  EXPECT_FALSE(one_shot(spec("2x2", "21", "S0,P"), cost));
  cost.one_shot_bytes = 0;
  EXPECT_FALSE(one_shot(spec("2", "0", "P"), cost));
}

TEST(Plan, EmptyTensorsSendNothing) {
  for (const char* from : {"S0", "S1", "R", "P", "P(max)"})
    for (const char* to : {"S0", "S1", "R", "P", "P(max)"})
      EXPECT_FALSE(
          plan(spec("2", "0x4", from), spec("2", "0x4", to), {}).communicates())
          << from << " -> " << to;
}

TEST(Plan, SpecsThatDifferInMoreAreRefused) {
  EXPECT_THROW(plan(spec("2", "4", "R"), spec("2", "5", "R"), {}), Error);
  const Spec* s = spec("2", "4", "R");
  EXPECT_THROW(plan(s, s->with(DType::kF64), {}), Error);
}

TEST(Plan, SeveralTensorsShareTheirCollectives) {
  const Spec *a = spec("2x2", "8x4", "P,R"), *b = spec("2x2", "5x3", "P,S0"),
             *c = spec("2x2", "6x6", "S0,R");
  const Move moves[] = {{a, spec("2x2", "8x4", "R,R")},
                        {c, spec("2x2", "6x6", "R,R")},
                        {b, spec("2x2", "5x3", "R,S0")}};
  Plan p = plan(moves, {});
  ASSERT_EQ(p.steps.size(), 3u);
  EXPECT_EQ(p.steps[0].kind, StepKind::kAllReduce);
  EXPECT_EQ(p.steps[0].tensor, 0);
  EXPECT_EQ(p.steps[1].tensor, 2);
  EXPECT_EQ(p.steps[1].round, p.steps[0].round);
  EXPECT_EQ(p.steps[2].kind, StepKind::kAllGather);
  EXPECT_EQ(p.steps[2].tensor, 1);
  EXPECT_NE(p.steps[2].round, p.steps[0].round);
  int64_t bytes = 0, apart = 0;
  for (const Move& m : moves) {
    Plan alone = plan(m.from, m.to, {});
    bytes += alone.bytes;
    apart += alone.time_ps;
  }
  EXPECT_EQ(p.bytes, bytes);
  // One latency less than three plans.
  EXPECT_EQ(p.time_ps, apart - LinkCost{}.alpha_ps);
}

TEST(Plan, NoMovesTakeNoSteps) {
  const Plan p = plan(std::span<const Move>(), {});
  EXPECT_TRUE(p.steps.empty());
  EXPECT_EQ(p.time_ps, 0);
}

// The smallest move between two meshes: a bool of one element.
TEST(Plan, OneByteIsSent) {
  const Mesh from({{"x", 1}}, {0}), to({{"y", 1}}, {1});
  const auto on = [](const Mesh& m) {
    return Spec::replicated(m, {1}, DType::kBool);
  };
  const Plan p = plan(on(from), on(to), {});
  ASSERT_EQ(p.steps.size(), 1u);
  EXPECT_EQ(p.steps[0].kind, StepKind::kExchange);
  EXPECT_EQ(p.bytes, 1);
  EXPECT_TRUE(p.has_collective);
  EXPECT_EQ(p.time_ps, LinkCost{}.alpha_ps + 50);
}

// Sums of maxima take two steps, and the tensor between them is too large for
// so small a block. Alone, the move is cut into chunks; a list of moves is not,
// but still has a plan.
TEST(Plan, WhatNeedsTwoStepsFindsItsWayWithOthers) {
  CostTable cost;
  cost.block_bytes = 64;
  const Spec *from = spec("2x2", "64x4", "P,P(max)"),
             *to = spec("2x2", "64x4", "R,R");
  Plan alone = plan(from, to, cost);
  EXPECT_GT(alone.chunks, 1);
  EXPECT_LE(alone.peak_bytes,
            from->largest_part_bytes() + to->largest_part_bytes() + 64);
  const Move moves[] = {{from, to}, {from, to}};
  Plan both = plan(moves, cost);
  EXPECT_EQ(both.chunks, 1);
  EXPECT_EQ(both.steps.back().to, to);
}

TEST(Plan, TextOfAStep) {
  Plan p = plan(spec("tp=2", "8", "P"), spec("tp=2", "8", "R"), {});
  ASSERT_EQ(p.steps.size(), 1u);
  EXPECT_EQ(to_string(p.steps[0]),
            "all-reduce on tp: f32[8](P) -> f32[8](R), 32 bytes");
}

TEST(Plan, OnlyGathers) {
  const Mesh mesh({{"x", 2}, {"y", 2}});
  const auto leads = [&](const char* from, const char* to) {
    const Shape shape = {8, 8};
    const auto spec = [&](const char* layout) {
      return Spec::get(mesh, shape, parse_layout(layout, mesh, shape),
                       DType::kF32);
    };
    return only_gathers(plan(spec(from), spec(to), {}));
  };
  EXPECT_TRUE(leads("S0,S1", "S0,S1"));  // no steps
  EXPECT_TRUE(leads("R,R", "S0,R"));     // a slice
  EXPECT_TRUE(leads("[{y,x},{}]", "R,S0"));
  EXPECT_TRUE(leads("S0,S1", "R,R"));
  EXPECT_FALSE(leads("S0,R", "S1,R"));
  EXPECT_FALSE(leads("S0,S0", "R,S0"));  // the parts lie elsewhere
  EXPECT_FALSE(leads("P,R", "R,R"));
}

// Exact parts take 16 bytes for each element, whatever the type of the sum.
TEST(OfParts, ExactSumsMoveAsTheyLie) {
  const Mesh mesh = Mesh::parse("dp=2");
  const auto spec = [&](const char* layout, DType t) {
    return Spec::get(mesh, {8}, parse_layout(layout, mesh, {8}), t);
  };
  const Spec *sum = spec("P(exact)", DType::kBF16),
             *part = spec("S0", DType::kBF16);
  const Move m = of_parts({sum, part});
  EXPECT_EQ(m.from, spec("P", DType::kExact));
  EXPECT_EQ(m.to, spec("S0", DType::kExact));
  EXPECT_EQ(plan(sum, part, CostTable()).bytes, 4 * 16);
  const Move other{part, spec("R", DType::kBF16)};
  EXPECT_EQ(of_parts(other), other);
}

}  // namespace
}  // namespace dtensor
