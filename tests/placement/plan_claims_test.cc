// SPDX-License-Identifier: Apache-2.0
// Promises of plan.h besides right values: the cheapest way between meshes,
// bounds over all ranks, shared latencies, chunks, and ties.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "dtensor/placement/plan.h"

namespace dtensor {
namespace {

const Spec* spec(const Mesh& mesh, const Shape& shape, const std::string& text,
                 DType dtype = DType::kF32) {
  return Spec::get(mesh, shape, parse_layout(text, mesh, shape), dtype);
}

// A partial is scattered before it leaves its mesh: an all-reduce, whose result
// is then sent, takes longer.
TEST(PlanClaims, BetweenMeshesTheCheapestWayIsTaken) {
  const Mesh here = Mesh::parse("a=4"),
             there = Mesh::parse("b=4 of ranks 4,5,6,7");
  const Shape shape{64, 64};
  const Spec *from = spec(here, shape, "P"), *to = spec(there, shape, "S0");
  const CostTable cost;
  const Plan p = plan(from, to, cost);
  ASSERT_EQ(p.steps.size(), 2u);
  EXPECT_EQ(p.steps[0].kind, StepKind::kReduceScatter);
  EXPECT_EQ(p.steps[0].bytes, 3 * 16 * 64 * 4);
  EXPECT_EQ(p.steps[1].kind, StepKind::kExchange);
  EXPECT_EQ(p.steps[1].bytes, 16 * 64 * 4);
  EXPECT_EQ(p.time_ps, 2 * 5000000 + 50 * (3 * 16 * 64 * 4 + 16 * 64 * 4));
  // (If only latencies had a price, both ways would cost the same.)
  EXPECT_EQ(p.bytes, 4 * 16 * 64 * 4);
}

// The lower bound is that of the rank that lacks the most.
TEST(PlanClaims, TheLowerBoundLooksAtEveryRank) {
  const Mesh mesh = Mesh::parse("13x7");
  for (const Shape& shape : {Shape{101, 3}, Shape{97, 101}, Shape{40, 23}})
    for (const char* a : {"S0,S0", "S0,S1", "S1,S0", "R,S0", "S0,R"})
      for (const char* b : {"S0,S0", "S0,S1", "S1,S0", "R,S0", "S0,R"}) {
        const Spec *from = spec(mesh, shape, a), *to = spec(mesh, shape, b);
        int64_t most = 0;
        for (int64_t r = 0; r < mesh.num_ranks(); ++r) {
          const Coord c = mesh.coordinate(r);
          const Region wants = to->region(c);
          most =
              std::max(most, volume(wants) - overlap(from->region(c), wants));
        }
        EXPECT_EQ(lower_bound_bytes(from, to), most * 4)
            << from->to_string() << " -> " << to->to_string();
        EXPECT_EQ(
            lower_bound_bytes(from->with(DType::kBF16), to->with(DType::kBF16)),
            most * 2);
      }
}

// The price of plans carried out together: equal steps are one collective.
int64_t together(const std::vector<Plan>& plans, const CostTable& cost) {
  size_t rounds = 0;
  for (const Plan& p : plans) rounds = std::max(rounds, p.steps.size());
  int64_t time = 0;
  for (size_t r = 0; r < rounds; ++r) {
    int64_t bytes = 0;
    for (const Plan& p : plans) bytes += p.steps[r].bytes;
    const Step& s = plans[0].steps[r];
    if (sends(s.kind)) time += cost.collective_ps(s.kind, s.axes, bytes);
  }
  return time;
}

// Eight equal moves share each latency, so that two collectives may pay for all
// of them together, but not for one alone.
TEST(PlanClaims, TensorsThatMoveTogetherShareTheirLatencies) {
  const Mesh mesh = Mesh::parse("2x4");
  CostTable cost;
  cost.axes = {{{5000000, 400}}, {{5000000, 10}}};
  int two_for_all = 0;
  for (int64_t n : {16, 32, 64, 128, 256})
    for (const char* a : {"S0,S0", "S0,S1", "P,P", "P,S0", "S0,P", "P,R"})
      for (const char* b : {"R,R", "S1,R", "R,S0", "S1,S0"}) {
        const Spec *from = spec(mesh, {n, 32}, a), *to = spec(mesh, {n, 32}, b);
        if (from == to) continue;
        const Plan alone = plan(from, to, cost);
        const std::vector<Move> moves(8, Move{from, to});
        const Plan all = plan(moves, cost);
        const int64_t separate = together(std::vector<Plan>(8, alone), cost);
        EXPECT_LE(all.time_ps, separate);
        two_for_all += all.time_ps < separate;
      }
  EXPECT_GT(two_for_all, 0);
}

// A plan in chunks pays its latencies in every chunk.
TEST(PlanClaims, ChunksPayTheirLatencies) {
  const Mesh mesh = Mesh::parse("2x2");
  CostTable cost;
  cost.axes = {{{1000, 400}}, {{1000, 1}}};
  cost.block_bytes = 256;
  int chunked = 0;
  for (const char* a : {"S0,S0", "S0,S1", "P,S0", "P,P", "S0,P", "R,P"})
    for (const char* b : {"R,R", "S1,S1", "S1,S0", "R,S0", "S0,R"}) {
      const Spec *from = spec(mesh, {64, 64}, a), *to = spec(mesh, {64, 64}, b);
      const Plan p = plan(from, to, cost);
      int64_t time = 0;
      for (const Step& s : p.steps) {
        if (!sends(s.kind)) continue;
        const LinkCost c = cost.link(s.kind, s.axes);
        time +=
            p.chunks * c.alpha_ps +
            static_cast<int64_t>(static_cast<double>(s.bytes) * c.ps_per_byte);
      }
      EXPECT_EQ(p.time_ps, time) << from->to_string() << to->to_string();
      EXPECT_LE(p.peak_bytes,
                from->largest_part_bytes() + to->largest_part_bytes() + 256);
      chunked += p.chunks > 1;
    }
  EXPECT_GT(chunked, 0);
}

// The search tries every order of the axes if they are few; axes of one rank do
// not count.
TEST(PlanClaims, AxesOfOneRankHideNoWay) {
  const Shape shape{120, 120};
  const auto time = [&](const char* mesh, const std::string& rest) {
    const Mesh m = Mesh::parse(mesh);
    return plan(spec(m, shape, "P,R" + rest), spec(m, shape, "S1,P" + rest), {})
        .time_ps;
  };
  EXPECT_EQ(time("2x3x1x1x1", ",R,R,R"), time("2x3", ""));
}

// Among ways of one price, the plan has the fewest collectives. Without
// latencies, a gather over two axes costs as much as gathers over one axis
// after the other.
TEST(PlanClaims, TiesGoToFewerCollectives) {
  CostTable cost;
  for (const char* text : {"2x2", "2x3", "4x2", "2x2x2"}) {
    const Mesh mesh = Mesh::parse(text);
    cost.axes.assign(static_cast<size_t>(mesh.num_axes()), {{0, 50}});
    const std::string rest = mesh.num_axes() > 2 ? ",S0" : "";
    const std::string whole = mesh.num_axes() > 2 ? ",R" : "";
    const Spec* split = spec(mesh, {48, 48}, "S0,S0" + rest);
    const Spec* r = spec(mesh, {48, 48}, "R,R" + whole);
    const Plan gather = plan(split, r, cost);
    ASSERT_EQ(gather.steps.size(), 1u) << to_string(gather.steps[0]);
    EXPECT_EQ(gather.steps[0].kind, StepKind::kAllGather);
    const Plan other = plan(spec(mesh, {48, 48}, "S0,S1" + rest), r, cost);
    EXPECT_EQ(other.steps.size(), 1u);
  }
}

// The same for every pair of layouts. A latency of 1 ps costs less than any
// byte, so it decides only ties.
TEST(PlanClaims, TiesOfAllPairsGoToFewerCollectives) {
  const auto collectives = [](const Plan& p) {
    return std::count_if(p.steps.begin(), p.steps.end(),
                         [](const Step& s) { return sends(s.kind); });
  };
  CostTable free, dear;
  for (int a = 0; a < 3; ++a) {
    free.axes.push_back({{0, 50}});
    dear.axes.push_back({{1, 50}});
  }
  for (const char* text : {"2x3", "4x2", "2x2x2"}) {
    const Mesh mesh = Mesh::parse(text);
    const bool three = mesh.num_axes() > 2;
    std::vector<SpecRef> specs;
    for (const char* a : {"R", "S0", "S1", "P"})
      for (const char* b : {",R", ",S0", ",S1", ",P"})
        for (const char* c : {",R", ",S0", ",P"}) {
          if (!three && c != std::string(",R")) continue;
          specs.push_back(
              spec(mesh, {12, 10}, a + std::string(b) + (three ? c : "")));
        }
    for (const Spec* from : specs)
      for (const Spec* to : specs) {
        const Plan p = plan(from, to, free), q = plan(from, to, dear);
        EXPECT_EQ(collectives(p), collectives(q))
            << from->to_string() << " -> " << to->to_string();
        EXPECT_EQ(p.bytes, q.bytes);
      }
  }
}

// A (sum, count) holds two values for each element, also while it is combined.
TEST(PlanClaims, PeakOfAMeanCountsItsPairs) {
  const Mesh mesh = Mesh::parse("4");
  const Spec *from = spec(mesh, {64, 64}, "P(mean)"),
             *to = spec(mesh, {64, 64}, "R");
  CostTable cost;
  cost.block_bytes = 1 << 20;
  const int64_t whole = 64 * 64 * 4;
  const Plan p = plan(from, to, cost);
  ASSERT_EQ(p.steps.size(), 1u);
  EXPECT_EQ(from->largest_part_bytes(), 2 * whole);
  EXPECT_EQ(p.peak_bytes, 2 * whole + whole + 2 * whole);
}

}  // namespace
}  // namespace dtensor
