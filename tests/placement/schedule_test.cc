// SPDX-License-Identifier: Apache-2.0
// Compares every schedule with a brute force over all indices.
#include "dtensor/placement/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "dtensor/placement/error.h"
#include "dtensor/placement/step_schedule.h"
#include "tests/placement/traffic.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::group_traffic;
using testing::Traffic;
using testing::traffic;

// --- Indices, one by one ----------------------------------------------------

using Indices = std::vector<int64_t>;  // row-major in a shape

Indices indices_of(const Region& region, const Shape& shape) {
  Indices all{0};
  for (size_t d = 0; d < region.size(); ++d) {
    Indices next;
    for (int64_t head : all)
      for (const Interval& r : region[d])
        for (int64_t i = r.lo; i < r.hi; ++i)
          next.push_back(head * shape[static_cast<int>(d)] + i);
    all = std::move(next);
  }
  return all;
}

std::set<int64_t> set_of(const Region& region, const Shape& shape) {
  const Indices all = indices_of(region, shape);
  return {all.begin(), all.end()};
}

// The part of a region that is in the panel, in the region's order.
Region clipped(const Region& region, const Region& panel) {
  if (panel.empty()) return region;
  Region result;
  for (size_t d = 0; d < region.size(); ++d) {
    IntervalList& list = result.emplace_back();
    for (const Interval& r : region[d])
      for (int64_t i = r.lo; i < r.hi; ++i) {
        bool in = false;
        for (const Interval& p : panel[d]) in |= p.lo <= i && i < p.hi;
        if (!in) continue;
        if (!list.empty() && list.back().hi == i)
          ++list.back().hi;
        else
          list.push_back({i, i + 1});
      }
  }
  return result;
}

// The position of each index of a held region in a dimension's memory.
std::vector<int64_t> positions(const HeldRegion& held, size_t d) {
  std::vector<int64_t> at;
  const IntervalList& list = held.ascending()[d];
  const auto starts = held.starts(d);
  int64_t next = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!starts.empty()) next = starts[i];
    for (int64_t x = list[i].lo; x < list[i].hi; ++x) {
      at.resize(std::max<size_t>(at.size(), static_cast<size_t>(x) + 1), -1);
      at[static_cast<size_t>(x)] = next++;
    }
  }
  return at;
}

void expect_holds(const HeldRegion& held, const Region& region) {
  ASSERT_EQ(held.ascending().size(), region.size());
  for (size_t d = 0; d < region.size(); ++d) {
    const std::vector<int64_t> at = positions(held, d);
    int64_t next = 0;
    for (const Interval& r : region[d])
      for (int64_t i = r.lo; i < r.hi; ++i) {
        ASSERT_LT(static_cast<size_t>(i), at.size());
        ASSERT_EQ(at[static_cast<size_t>(i)], next++);
      }
    EXPECT_EQ(length(held.ascending()[d]), next);
  }
}

// --- Steps ------------------------------------------------------------------

// "R,S0,P" per axis; with `turned`, axes that share a dimension split it last
// axis first.
Layout layout(const std::vector<std::string>& placements, const Shape& shape,
              bool turned = false) {
  Layout l;
  for (int d = 0; d < shape.size(); ++d) {
    std::vector<int> axes;
    for (size_t a = 0; a < placements.size(); ++a)
      if (placements[a] == "S" + std::to_string(d))
        axes.push_back(static_cast<int>(a));
    if (turned) std::reverse(axes.begin(), axes.end());
    l.dims.push_back(Dim(shape[d], Split::over(axes)));
  }
  for (size_t a = 0; a < placements.size(); ++a) {
    const int axis = static_cast<int>(a);
    if (placements[a] == "P") l.partials.push_back({axis, ReduceOp::kSum});
    if (placements[a] == "mean") l.partials.push_back({axis, ReduceOp::kMean});
  }
  return l;
}

std::vector<std::vector<std::string>> all_placements(
    int axes, const std::vector<std::string>& kinds) {
  std::vector<std::vector<std::string>> all{{}};
  for (int a = 0; a < axes; ++a) {
    std::vector<std::vector<std::string>> next;
    for (const auto& head : all)
      for (const std::string& kind : kinds) {
        next.push_back(head);
        next.back().push_back(kind);
      }
    all = std::move(next);
  }
  return all;
}

std::vector<SpecRef> all_specs(const Mesh& mesh, const Shape& shape,
                               const std::vector<std::string>& kinds) {
  std::vector<SpecRef> specs;
  for (const auto& p : all_placements(mesh.num_axes(), kinds))
    for (bool turned : {false, true}) {
      const Spec* s =
          Spec::get(mesh, shape, layout(p, shape, turned), DType::kF32);
      if (std::find(specs.begin(), specs.end(), s) == specs.end())
        specs.push_back(s);
    }
  return specs;
}

Region memory_region(const Spec* spec, bool pairs, int64_t world_rank) {
  const int64_t rank = spec->mesh().mesh_rank_of(world_rank);
  if (rank < 0) return Region(static_cast<size_t>(spec->ndim() + pairs));
  Region r = spec->region(spec->mesh().coordinate(rank));
  if (pairs) r.insert(r.begin(), IntervalList{{0, 2}});
  return r;
}

// The number of the summand that a rank has: its coordinates on the axes whose
// partials the step combines.
int64_t term_of(const Step& step, int64_t world_rank) {
  const Mesh& mesh = step.from->mesh();
  const Coord c = mesh.coordinate(mesh.mesh_rank_of(world_rank));
  int64_t term = 0;
  for (const Partial& p : step.from->layout().partials)
    if (!step.to->layout().partial_on(p.axis))
      term = term * mesh.axis_size(p.axis) + c[p.axis];
  return term;
}

int64_t num_terms(const Step& step) {
  int64_t n = 1;
  for (const Partial& p : step.from->layout().partials)
    if (!step.to->layout().partial_on(p.axis))
      n *= step.from->mesh().axis_size(p.axis);
  return n;
}

// A member serves exactly the pieces that the others take from it.
using Served = std::map<std::pair<int, int>, std::vector<Region>>;

void note_served(const Schedule& s, Served& taken, Served& served) {
  for (const Piece& p : s.pieces)
    for (int m : p.members)
      if (m != s.self) taken[{m, s.self}].push_back(p.region);
  for (size_t i = 0; i < s.serves.size(); ++i) {
    const Piece& p = s.serves[i];
    if (i > 0) {
      EXPECT_TRUE(comes_first(s.serves[i - 1].region, p.region));
    }
    EXPECT_TRUE(std::is_sorted(p.members.begin(), p.members.end()));
    for (int m : p.members) served[{s.self, m}].push_back(p.region);
  }
}

void expect_same(Served& taken, const Served& served) {
  for (auto& [pair, regions] : taken)
    std::sort(regions.begin(), regions.end(), comes_first);
  EXPECT_EQ(taken, served);
}

// Checks one rank's schedule. Adds what it takes from each member to
// sent[member].
void check(const Step& step, int64_t rank, const Region& panel,
           std::vector<int64_t>& sent) {
  SCOPED_TRACE(fmt::format("rank {} of {} to {}", rank, step.from->to_string(),
                           step.to->to_string()));
  const bool pairs = step.from->components() > 1;
  Shape shape = step.from->shape();
  if (pairs) shape.insert(0, 2);
  const std::vector<int64_t> group = members(step, rank);
  const Schedule s = schedule(step, rank, panel);
  ASSERT_EQ(s.has.size(), group.size());
  ASSERT_EQ(group[static_cast<size_t>(s.self)], rank);
  std::vector<std::set<int64_t>> held;
  for (int64_t r : group)
    held.push_back(
        step.from->mesh().mesh_rank_of(r) < 0
            ? std::set<int64_t>()
            : set_of(clipped(memory_region(step.from, pairs, r), panel),
                     shape));
  const bool takes = step.to->mesh().mesh_rank_of(rank) >= 0;
  const Region wants = clipped(memory_region(step.to, pairs, rank), panel);
  expect_holds(s.wants, wants);
  EXPECT_EQ(s.held,
            static_cast<int64_t>(held[static_cast<size_t>(s.self)].size()));
  if (step.from->mesh().mesh_rank_of(rank) < 0) {
    EXPECT_EQ(s.held, 0);
  }
  EXPECT_EQ(s.terms, num_terms(step));

  int64_t received = 0;
  std::set<int64_t> covered;
  for (const Piece& piece : s.pieces) {
    EXPECT_TRUE(std::is_sorted(piece.members.begin(), piece.members.end()));
    ASSERT_EQ(static_cast<int64_t>(piece.members.size()), s.terms);
    std::set<int64_t> terms;
    for (int m : piece.members)
      terms.insert(term_of(step, group[static_cast<size_t>(m)]));
    EXPECT_EQ(static_cast<int64_t>(terms.size()), s.terms);
    for (int64_t i : indices_of(piece.region, shape)) {
      EXPECT_TRUE(covered.insert(i).second) << "index " << i << " twice";
      for (int m : piece.members) {
        EXPECT_TRUE(held[static_cast<size_t>(m)].contains(i))
            << "member " << m << " has no " << i;
        received += m != s.self;
        sent[static_cast<size_t>(m)] += m != s.self;
      }
      const bool own = held[static_cast<size_t>(s.self)].contains(i);
      EXPECT_EQ(own, std::binary_search(piece.members.begin(),
                                        piece.members.end(), s.self));
    }
    for (int m : piece.members)
      expect_holds(s.has[static_cast<size_t>(m)],
                   clipped(memory_region(step.from, pairs,
                                         group[static_cast<size_t>(m)]),
                           panel));
  }
  if (takes) {
    EXPECT_EQ(covered, set_of(wants, shape));
  } else {
    EXPECT_TRUE(covered.empty());
  }
  EXPECT_EQ(testing::received(s), received);
}

// Checks all ranks' schedules of a step, and the traffic that follows from
// them.
void check(const Step& step, const Region& panel = {}) {
  std::set<int64_t> ranks;
  for (const Mesh& m : {step.from->mesh(), step.to->mesh()})
    for (int64_t r = 0; r < m.num_ranks(); ++r) ranks.insert(m.world_rank(r));
  std::set<std::vector<int64_t>> groups;
  for (int64_t r : ranks) groups.insert(members(step, r));
  for (const std::vector<int64_t>& group : groups) {
    std::vector<int64_t> sent(group.size());
    std::set<uint64_t> hashes;
    Served taken, served;
    for (int64_t r : group) {
      ASSERT_NO_FATAL_FAILURE(check(step, r, panel, sent));
      Schedule s = schedule(step, r, panel);
      hashes.insert(s.hash);
      serve(s, step, r, panel);
      note_served(s, taken, served);
      if (!s.serves.empty())
        expect_holds(
            s.has[static_cast<size_t>(s.self)],
            clipped(memory_region(step.from, step.from->components() > 1, r),
                    panel));
    }
    expect_same(taken, served);
    EXPECT_EQ(hashes.size(), 1u);
    if (!panel.empty()) continue;
    const std::vector<Traffic> traffic = group_traffic(step, group[0]);
    ASSERT_EQ(traffic.size(), group.size());
    for (size_t m = 0; m < group.size(); ++m) {
      EXPECT_EQ(traffic[m].sent, sent[m] * 4);
      EXPECT_EQ(traffic[m].received,
                testing::received(schedule(step, group[m])) * 4);
    }
  }
}

bool same_partials(const Spec* a, const Spec* b) {
  return a->layout().partials == b->layout().partials;
}

// The axes that a step needs: those that split the source, and those whose
// partials it combines.
AxisMask needed_axes(const Spec* from, const Spec* to) {
  AxisMask axes = from->split_axes();
  for (const Partial& p : from->layout().partials)
    if (!to->layout().partial_on(p.axis)) axes |= AxisMask{1} << p.axis;
  return axes;
}

bool combines_alone(const Spec* from, const Spec* to) {
  for (const Partial& p : to->layout().partials)
    if (!from->layout().partial_on(p.axis)) return false;
  return true;
}

Step step_of(const Spec* from, const Spec* to, AxisMask axes) {
  const bool reduces = !same_partials(from, to);
  return {.kind = reduces ? StepKind::kReduceExchange : StepKind::kExchange,
          .axes = axes,
          .from = from,
          .to = to};
}

TEST(ScheduleTest, EveryPairOfLayouts) {
  int pairs = 0;
  for (const char* text : {"2x4", "2x3", "4x4"})
    for (const Shape& shape : {Shape{5, 7}, Shape{1, 9}, Shape{0, 4}}) {
      const Mesh mesh = Mesh::parse(text);
      const auto specs = all_specs(mesh, shape, {"R", "S0", "S1", "P"});
      for (const Spec* from : specs)
        for (const Spec* to : specs) {
          if (from == to || !combines_alone(from, to)) continue;
          const AxisMask needed = needed_axes(from, to);
          check(step_of(from, to, needed));
          if (needed != mesh.all_axes() && !from->partial_axes())
            check(step_of(from, to, mesh.all_axes()));
          if (HasFatalFailure() || HasNonfatalFailure()) return;
          ++pairs;
        }
    }
  printf("%d pairs\n", pairs);
}

TEST(ScheduleTest, ThreeAxes) {
  const Mesh mesh = Mesh::parse("2x2x2");
  const Shape shape{5, 3, 2};
  const auto specs = all_specs(mesh, shape, {"R", "S0", "S2", "P"});
  std::mt19937 rng(1);
  for (int i = 0; i < 1500; ++i) {
    const Spec* from = specs[rng() % specs.size()];
    const Spec* to = specs[rng() % specs.size()];
    if (from == to || !combines_alone(from, to)) continue;
    // Any further axes may take part, except partial ones that stay.
    const AxisMask needed = needed_axes(from, to);
    const AxisMask more = rng() & mesh.all_axes() & ~from->partial_axes();
    check(step_of(from, to, needed | more));
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

// Scalars, pairs of (sum, count), granules, points, products and concats.
std::vector<SpecRef> odd_specs(const Mesh& mesh) {
  const auto get = [&](Dim d, std::vector<Partial> partials = {}) {
    Layout l;
    l.dims = {std::move(d), Dim(3)};
    l.partials = std::move(partials);
    return Spec::get(mesh, {24, 3}, l, DType::kF32);
  };
  const Dim q = Dim::product({Dim(3), Dim(8, Split::over({1}))});
  return {
      get(Dim(24, Split::over({0, 1}, 4))),
      get(Dim(24, Split::over({1, 0}))),
      get(Dim(24, Split::at({0, 1}, {0, 0, 1, 17, 17, 20, 24}, mesh))),
      get(q),
      get(Dim::product(
          {Dim(2), Dim(4, Split::over({0})), Dim(3, Split::over({1}))})),
      // A whole segment, which all have, and segments of unequal sizes.
      get(Dim::concat({Dim(6), Dim(18, Split::over({1, 0}))})),
      get(Dim::concat({Dim(6, Split::over({1})), Dim(4, Split::over({0})),
                       Dim(14, Split::over({0, 1}))})),
      get(Dim(24)),
      get(Dim(24, Split::over({1})), {{0, ReduceOp::kMean}}),
      get(q, {{0, ReduceOp::kSum}}),
  };
}

TEST(ScheduleTest, GranulesPointsAndTrees) {
  const Mesh mesh = Mesh::parse("2x3");
  const auto specs = odd_specs(mesh);
  const std::vector<Region> panels{
      {}, {{{2, 11}}, {{0, 3}}}, {{{0, 1}, {5, 6}, {20, 24}}, {{1, 3}}}};
  for (const Spec* from : specs)
    for (const Spec* to : specs) {
      if (from == to || !combines_alone(from, to)) continue;
      for (Region panel : panels) {
        if (!panel.empty() && from->components() > 1)
          panel.insert(panel.begin(), IntervalList{{0, 2}});
        check(step_of(from, to, needed_axes(from, to)), panel);
        if (!from->partial_axes())
          check(step_of(from, to, mesh.all_axes()), panel);
      }
      if (HasFatalFailure() || HasNonfatalFailure()) return;
    }
}

TEST(ScheduleTest, Scalars) {
  const Mesh mesh = Mesh::parse("2x3");
  const Spec* r = Spec::get(mesh, {}, {}, DType::kF32);
  const Spec* sum =
      Spec::get(mesh, {}, {{}, {{1, ReduceOp::kSum}}}, DType::kF32);
  const Spec* mean =
      Spec::get(mesh, {}, {{}, {{0, ReduceOp::kMean}}}, DType::kF32);
  check(step_of(sum, r, 2));
  check(step_of(mean, r, 1));
  const Spec* other = Spec::get(Mesh({{"x", 2}}, {7, 3}), {}, {}, DType::kF32);
  check(step_of(r, other, 0));
  check(step_of(other, r, 0));
}

TEST(ScheduleTest, BetweenMeshes) {
  const Shape shape{7, 5};
  const std::vector<std::pair<Mesh, Mesh>> meshes{
      {Mesh::parse("2x3"), Mesh::parse("3x2")},
      {Mesh({{"a", 4}}), Mesh({{"b", 2}, {"c", 2}}, {5, 4, 9, 6})},
      {Mesh({{"a", 2}, {"b", 2}}, {3, 1, 0, 2}), Mesh({{"a", 3}}, {2, 5, 3})},
      {Mesh({{"a", 2}}), Mesh({{"a", 2}, {"b", 4}}, {0, 2, 4, 6, 1, 3, 5, 7})}};
  for (const auto& [a, b] : meshes)
    for (const Spec* from : all_specs(a, shape, {"R", "S0", "S1"}))
      for (const Spec* to : all_specs(b, shape, {"R", "S0", "S1"})) {
        check(step_of(from, to, 0));
        check(step_of(from, to, 0), {{{1, 6}}, {{0, 2}, {3, 5}}});
        check(step_of(to, from, 0));
        if (HasFatalFailure() || HasNonfatalFailure()) return;
      }
}

TEST(ScheduleTest, AllReduce) {
  const Mesh mesh = Mesh::parse("2x3");
  Layout l = layout({"S0", "P"}, {5, 7});
  const Spec* from = Spec::get(mesh, {5, 7}, l, DType::kF64);
  l.partials.clear();
  const Step step{.kind = StepKind::kAllReduce,
                  .axes = 2,
                  .from = from,
                  .to = from->with(l)};
  EXPECT_EQ(members(step, 4), (std::vector<int64_t>{3, 4, 5}));
  // 14 elements at coordinate 0 of the first axis, 21 at 1, over 3 ranks.
  const int64_t own[2][3] = {{4, 5, 5}, {7, 7, 7}};
  for (int64_t r = 0; r < 6; ++r) {
    const int64_t n = r < 3 ? 14 : 21, c = own[r / 3][r % 3];
    const int64_t bytes = (2 * c + n - c) * 8;
    EXPECT_EQ(traffic(step, r), (Traffic{bytes, bytes}));
  }
}

TEST(ScheduleTest, NothingIsSentBySlices) {
  const Mesh mesh = Mesh::parse("2x3");
  const Shape shape{5, 7};
  const Spec* r = Spec::replicated(mesh, shape, DType::kF32);
  const Step step{.kind = StepKind::kSlice,
                  .axes = 0,
                  .from = r,
                  .to = r->with(layout({"S0", "R"}, shape))};
  EXPECT_EQ(traffic(step, 1), Traffic{});
  EXPECT_TRUE(group_traffic(step, 1).empty());
  EXPECT_THROW(schedule(step, 1), Error);
  EXPECT_EQ(members(step, 6), std::vector<int64_t>{});
  EXPECT_EQ(traffic(step, 6), Traffic{});
}

// --- Regions that no layout says --------------------------------------------

Region random_region(std::mt19937& rng, const Shape& shape) {
  Region region;
  for (int64_t n : shape) {
    IntervalList pieces;
    for (int64_t lo = 0; lo < n;) {
      const int64_t hi = lo + 1 + static_cast<int64_t>(rng() % 4);
      if (rng() % 2) pieces.push_back({lo, std::min(n, hi)});
      lo = hi + (rng() % 2 && !pieces.empty());
    }
    if (rng() % 3 == 0) std::shuffle(pieces.begin(), pieces.end(), rng);
    IntervalList& list = region.emplace_back();
    for (const Interval& r : pieces)
      if (!list.empty() && list.back().hi == r.lo)
        list.back().hi = r.hi;
      else
        list.push_back(r);
  }
  return region;
}

TEST(RegionsTest, ExchangeTakesTheFirstInOrder) {
  std::mt19937 rng(4);
  for (int round = 0; round < 400; ++round) {
    const Shape shape{static_cast<int64_t>(rng() % 9 + 1),
                      static_cast<int64_t>(rng() % 9 + 1)};
    const int p = static_cast<int>(rng() % 5 + 1);
    const int self = static_cast<int>(rng() % static_cast<unsigned>(p));
    std::vector<Region> sources;
    for (int m = 0; m < p; ++m) sources.push_back(random_region(rng, shape));
    const Region wants = random_region(rng, shape);
    std::map<int64_t, int> expected;
    for (int64_t i : indices_of(wants, shape)) {
      for (int m = 0; m < p; ++m) {
        const int asked = (self + m) % p;
        if (!set_of(sources[static_cast<size_t>(asked)], shape).contains(i))
          continue;
        expected[i] = asked;
        break;
      }
    }
    const auto make = [&] {
      return exchange_schedule(wants, sources, self, "test");
    };
    if (static_cast<int64_t>(expected.size()) < volume(wants)) {
      EXPECT_THROW(make(), Error);
      continue;
    }
    const Schedule s = make();
    std::map<int64_t, int> found;
    for (const Piece& piece : s.pieces) {
      ASSERT_EQ(piece.members.size(), 1u);
      for (int64_t i : indices_of(piece.region, shape))
        EXPECT_TRUE(found.insert({i, piece.members[0]}).second);
    }
    EXPECT_EQ(found, expected);
    int64_t received = 0;
    for (const auto& [i, m] : expected) received += m != self;
    EXPECT_EQ(testing::received(s), received);
    expect_holds(s.wants, wants);
    for (int m = 0; m < p; ++m)
      expect_holds(s.has[static_cast<size_t>(m)],
                   sources[static_cast<size_t>(m)]);
  }
}

TEST(RegionsTest, ReductionTakesAll) {
  std::mt19937 rng(5);
  for (int round = 0; round < 400; ++round) {
    const Shape shape{static_cast<int64_t>(rng() % 7),
                      static_cast<int64_t>(rng() % 7 + 1)};
    const int p = static_cast<int>(rng() % 5 + 1);
    std::vector<Region> sources;
    for (int m = 0; m < p; ++m) sources.push_back(random_region(rng, shape));
    const Region wants = random_region(rng, shape);
    const Schedule s = reduce_schedule(wants, sources, 0);
    std::map<int64_t, std::vector<int>> expected, found;
    for (int64_t i : indices_of(wants, shape)) {
      expected[i];
      for (int m = 0; m < p; ++m)
        if (set_of(sources[static_cast<size_t>(m)], shape).contains(i))
          expected[i].push_back(m);
    }
    for (const Piece& piece : s.pieces)
      for (int64_t i : indices_of(piece.region, shape))
        EXPECT_TRUE(found.insert({i, piece.members}).second);
    EXPECT_EQ(found, expected);
    EXPECT_EQ(s.terms, p);
  }
}

TEST(RegionsTest, ServesWhatOthersTake) {
  std::mt19937 rng(6);
  for (int round = 0; round < 300; ++round) {
    const Shape shape{static_cast<int64_t>(rng() % 7 + 1),
                      static_cast<int64_t>(rng() % 7 + 1)};
    const size_t p = rng() % 5 + 1;
    const bool reduces = rng() % 2;
    std::vector<Region> sources, wants;
    for (size_t m = 0; m < p; ++m) {
      sources.push_back(random_region(rng, shape));
      wants.push_back(random_region(rng, shape));
    }
    sources[rng() % p] = {{{0, shape[0]}}, {{0, shape[1]}}};
    Served taken, served;
    for (size_t m = 0; m < p; ++m) {
      const int self = static_cast<int>(m);
      Schedule s = reduces ? reduce_schedule(wants[m], sources, self)
                           : exchange_schedule(wants[m], sources, self, "x");
      reduces ? serve_reduction(s, wants) : serve_exchange(s, wants);
      note_served(s, taken, served);
    }
    expect_same(taken, served);
  }
}

TEST(RegionsTest, HashSaysWhatIsHeld) {
  const Region all{{{0, 6}}};
  const std::vector<Region> a{{{{0, 3}}}, {{{3, 6}}}};
  const std::vector<Region> b{{{{0, 2}}}, {{{2, 6}}}};
  EXPECT_EQ(exchange_schedule(all, a, 0, "x").hash,
            exchange_schedule(all, a, 1, "x").hash);
  EXPECT_NE(exchange_schedule(all, a, 0, "x").hash,
            exchange_schedule(all, b, 0, "x").hash);
  EXPECT_EQ(testing::error_of([&] {
              exchange_schedule({{{2, 9}}}, a, 1, "move");
            }),
            "[move] member 1 needs [6, 9), but none of the 2 members has it, "
            "which is an error in dtensor; report it");
}

// --- Balance ----------------------------------------------------------------

// A lower bound of what the busiest sender sends, if every rank receives what
// it lacks once. Any set of ranks sends at least the elements that only they
// hold, spread evenly. And a receiver asks one rank for all that the same ranks
// hold, so the largest such piece is a bound, too.
double least_largest_send(const Step& step) {
  const Mesh& mesh = step.from->mesh();
  const size_t p = static_cast<size_t>(mesh.num_ranks());
  std::map<int64_t, uint32_t> holders, wanting;
  std::map<std::pair<size_t, uint32_t>, int64_t> pieces;  // receiver, holders
  for (size_t r = 0; r < p; ++r) {
    const Coord c = mesh.coordinate(static_cast<int64_t>(r));
    for (int64_t i : indices_of(step.from->region(c), step.from->shape()))
      holders[i] |= 1u << r;
    for (int64_t i : indices_of(step.to->region(c), step.to->shape()))
      wanting[i] |= 1u << r;
  }
  std::vector<int64_t> demand(size_t{1} << p);
  double least = 0;
  for (const auto& [i, mask] : holders) {
    demand[mask] += std::popcount(wanting[i] & ~mask);
    for (size_t r = 0; r < p; ++r)
      if ((wanting[i] & ~mask) >> r & 1)
        least = std::max(least, static_cast<double>(++pieces[{r, mask}]));
  }
  for (size_t r = 0; r < p; ++r)
    for (size_t set = 0; set < demand.size(); ++set)
      if (set >> r & 1) demand[set] += demand[set ^ (size_t{1} << r)];
  for (size_t set = 1; set < demand.size(); ++set)
    least = std::max(least, std::ceil(static_cast<double>(demand[set]) /
                                      std::popcount(set)));
  return least;
}

// Where replicas can share the work, they do.
TEST(BalanceTest, LargestSendAgainstTheBest) {
  const std::pair<const char*, Shape> cases[] = {{"2x4", {16, 16}},
                                                 {"4x4", {16, 16}},
                                                 {"2x2x2", {16, 16}},
                                                 {"2x3", {12, 12}},
                                                 {"2x3", {5, 7}}};
  for (const auto& [text, shape] : cases) {
    const Mesh mesh = Mesh::parse(text);
    const auto specs = all_specs(mesh, shape, {"R", "S0", "S1"});
    double sum = 0, worst = 0;
    int count = 0, above = 0;
    std::string worst_pair;
    for (const Spec* from : specs)
      for (const Spec* to : specs) {
        const Step step = step_of(from, to, mesh.all_axes());
        const double best = least_largest_send(step);
        if (best == 0) continue;
        int64_t most = 0;
        for (const Traffic& t : group_traffic(step, 0))
          most = std::max(most, t.sent / 4);
        const double ratio = static_cast<double>(most) / best;
        EXPECT_GE(ratio, 1) << from->to_string() << to->to_string();
        sum += std::log(ratio);
        ++count;
        above += ratio > 1;
        if (ratio > worst) {
          worst = ratio;
          worst_pair = from->to_string() + " -> " + to->to_string();
        }
      }
    printf(
        "%s %s: largest send / best possible: geomean %.3f, worst %.2f, "
        "above 1 in %d of %d (%s)\n",
        text, to_string(shape).c_str(), std::exp(sum / count), worst, above,
        count, worst_pair.c_str());
  }
}

TEST(BalanceTest, ReceiversTakeTurns) {
  // Every rank needs what four others hold; each serves one.
  const Mesh mesh = Mesh::parse("4x4");
  const Shape shape{16, 16};
  const Spec* from =
      Spec::get(mesh, shape, layout({"R", "S0"}, shape), DType::kF32);
  const Spec* to =
      Spec::get(mesh, shape, layout({"S0", "R"}, shape), DType::kF32);
  for (const Traffic& t : group_traffic(step_of(from, to, 3), 0)) {
    EXPECT_LE(t.sent, 4 * 16 * 4);
    EXPECT_LE(t.received, 4 * 16 * 4);
  }
}

TEST(BalanceTest, WhoHasAPieceItselfTakesNoTurn) {
  // One of the four receivers of a column block has its four rows already. The
  // four ranks that hold these rows serve the other three receivers evenly.
  const Mesh mesh = Mesh::parse("4x4");
  const Shape shape{16, 16};
  const Spec* from =
      Spec::get(mesh, shape, layout({"R", "S0"}, shape), DType::kF32);
  const Spec* to =
      Spec::get(mesh, shape, layout({"S1", "R"}, shape), DType::kF32);
  for (const Traffic& t : group_traffic(step_of(from, to, 3), 0))
    EXPECT_EQ(t, (Traffic{3 * 16 * 4, 3 * 16 * 4}));
}

TEST(BalanceTest, WholeSegmentsComeFromAll) {
  // All four sources have the first eight indices; each has two of the others.
  const Mesh sources({{"a", 4}}), targets({{"b", 4}}, {4, 5, 6, 7});
  const Layout l{{Dim::concat({Dim(8), Dim(8, Split::over({0}))})}, {}};
  const Spec* from = Spec::get(sources, {16}, l, DType::kF32);
  const Spec* to = Spec::replicated(targets, {16}, DType::kF32);
  const std::vector<Traffic> ranks = group_traffic(step_of(from, to, 0), 0);
  ASSERT_EQ(ranks.size(), 8u);
  for (size_t r = 0; r < 4; ++r)
    EXPECT_EQ(ranks[r], (Traffic{(8 + 4 * 2) * 4, 0})) << r;
}

}  // namespace
}  // namespace dtensor
