// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/step_between.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtensor/placement/prices.h"
#include "dtensor/placement/spec.h"

namespace dtensor {
namespace {

const Spec* spec(const Mesh& mesh, const Shape& shape, const char* layout) {
  return Spec::get(mesh, shape, parse_layout(layout, mesh, shape), DType::kF32);
}

// The one step from a layout to another.
struct Direct {
  Route route;
  Waypoint s, t;
  StepBetween step;
  bool there;
  std::optional<Steps> steps;

  Direct(const char* mesh_text, const Shape& shape, const char* from,
         const char* to) {
    const Mesh mesh = Mesh::parse(mesh_text);
    const Spec *a = spec(mesh, shape, from), *b = spec(mesh, shape, to);
    route.reset(a, b);
    steps.emplace(route, a);
    s = {route.from(), a->split_axes(), a->partial_axes()};
    t = {route.to(), b->split_axes(), b->partial_axes()};
    there = steps->between(s, t, step);
  }
  int64_t received() { return steps->received(s, t, step, true); }
};

TEST(StepBetween, IsCalledWhatItIs) {
  struct Row {
    const char *from, *to;
    StepKind kind;
    AxisMask group;
    int64_t received;
  };
  for (const Row& r : {
           Row{"R,R", "S0,R", StepKind::kSlice, 0, 0},
           Row{"S0,R", "R,R", StepKind::kAllGather, 0b01, 32},
           Row{"S0,S0", "S0,R", StepKind::kAllGather, 0b10, 16},
           Row{"P,R", "R,R", StepKind::kAllReduce, 0b01, 64},
           Row{"P,R", "S0,R", StepKind::kReduceScatter, 0b01, 32},
           Row{"P,P", "R,R", StepKind::kAllReduce, 0b11, 96},
           Row{"S0,R", "S1,R", StepKind::kAllToAll, 0b01, 16},
           Row{"S0,R", "R,S0", StepKind::kExchange, 0b01, 32},
           Row{"S0,S1", "S1,S0", StepKind::kPermute, 0b11, 16},
           Row{"P,S0", "S0,R", StepKind::kReduceExchange, 0b11, 64},
       }) {
    Direct d("2x2", {8, 8}, r.from, r.to);
    ASSERT_TRUE(d.there) << r.from << " -> " << r.to;
    const int64_t received = d.received();
    EXPECT_EQ(name(d.step.kind), name(r.kind)) << r.from << " -> " << r.to;
    EXPECT_EQ(d.step.group, r.group) << r.from << " -> " << r.to;
    EXPECT_EQ(received, r.received) << r.from << " -> " << r.to;
  }
}

// The bound for all pairs of these layouts, including unequal and empty parts.
// It is useful only if it is often above zero.
TEST(StepBetween, ABoundFromSizesIsNeverAboveWhatIsReceived) {
  const char* layouts[] = {"R,R",   "S0,R",  "R,S0",    "S0,S0",
                           "S0,S1", "S1,S0", "S1,S1",   "P,R",
                           "P,S0",  "P,P",   "S0/2,S1", "[{a1,a0},{}]"};
  int above = 0, all = 0;
  for (const char* mesh : {"2x2", "2x3", "9x8"})
    for (const Shape& shape : {Shape{8, 8}, Shape{10, 7}, Shape{2, 3}})
      for (const char* from : layouts)
        for (const char* to : layouts) {
          if (std::string(to).find('P') != std::string::npos) continue;
          if (std::string(from).find("/2") + std::string(to).find("/2") !=
                  2 * std::string::npos &&
              shape[0] % 2)
            continue;
          Direct d(mesh, shape, from, to);
          if (!d.there) continue;
          const int64_t bound = d.steps->least_received(d.s, d.t, d.step);
          EXPECT_LE(bound, d.steps->received(d.s, d.t, d.step, false))
              << mesh << " " << from << " -> " << to;
          above += bound > 0;
          ++all;
        }
  EXPECT_GT(above, all / 4) << all;
}

// A search looks at some of many ranks; here a rank that it leaves out lacks an
// element.
TEST(StepBetween, IsNoSliceWhereOneRankOfManyLacks) {
  std::string listed = "S0@0|2|3";  // the second boundary one earlier
  for (int i = 3; i <= 65; ++i) listed += "|" + std::to_string(2 * i);
  Direct d("65", {130}, "S0", listed.c_str());
  ASSERT_TRUE(d.there);
  const StepKind kind = d.step.kind;
  EXPECT_EQ(d.steps->received(d.s, d.t, d.step, false), 1);
  EXPECT_EQ(name(d.step.kind), name(kind));
}

TEST(StepBetween, PartialsAreCombinedInTheirOrder) {
  // The innermost partial is combined first; the outer one alone cannot be.
  EXPECT_TRUE(Direct("2x2", {8, 8}, "P(max),P", "P(max),R").there);
  EXPECT_FALSE(Direct("2x2", {8, 8}, "P(max),P", "R,P").there);
  EXPECT_FALSE(Direct("2x2", {8, 8}, "P(max),P", "R,R").there);
  EXPECT_TRUE(Direct("2x2", {8, 8}, "P,P", "R,P").there);
  EXPECT_FALSE(Direct("2x2", {8, 8}, "R,R", "P,R").there) << "a fill";
}

TEST(StepBetween, HoldsWhatIsNeitherSourceNorDestination) {
  Direct d("2x2", {8, 8}, "S0,S1", "R,R");
  EXPECT_EQ(d.steps->held(d.s, true, d.t, true, d.step), 0);
  EXPECT_EQ(d.steps->held(d.s, false, d.t, true, d.step), 16);
  EXPECT_EQ(d.steps->held(d.s, true, d.t, false, d.step), 64);
  EXPECT_EQ(d.steps->held(d.s, false, d.t, false, d.step), 80);
  // A (sum, count) is two values for each element, and is made one at the end.
  Direct mean("2x2", {8, 8}, "P(mean),R", "R,R");
  EXPECT_EQ(mean.steps->components(mean.s), 2);
  EXPECT_EQ(mean.steps->held(mean.s, true, mean.t, true, mean.step), 128);
}

TEST(StepBetween, WhatIsFreeOnTheWay) {
  auto sliced = [](const char* from, const char* to) {
    Direct d("2x2", {8, 8}, from, to);
    return d.steps->layout(d.steps->sliced(d.s, d.t))
        .to_string(Mesh::parse("2x2"));
  };
  EXPECT_EQ(sliced("R,S0", "S1,R"), "S1,S0");
  EXPECT_EQ(sliced("S0,R", "S0,S0"), "S0,S0");
  EXPECT_EQ(sliced("S0,R", "S1,R"), "S0,R") << "the axis is not free";
  EXPECT_EQ(sliced("P,S0", "S1,R"), "P,S0");
  Direct d("2x2", {8, 8}, "R,S0", "S1,R");
  EXPECT_EQ(d.steps->largest(d.s), 32);
  EXPECT_EQ(d.steps->largest(d.steps->sliced(d.s, d.t)), 16);
}

TEST(StepBetween, ReplicasServeIfThatCostsNothing) {
  const Mesh mesh = Mesh::parse("2x2");
  for (size_t free : {0, 1}) {
    Direct d("2x2", {8, 8}, free ? "S0,R" : "R,S0", free ? "R,S0" : "S0,R");
    ASSERT_EQ(name(d.step.kind), "exchange");
    const AxisMask own = free ? 0b01 : 0b10;
    ASSERT_EQ(d.step.group, own);
    CostTable cost;
    cost.axes = {{100, 4}, {100, 4}};
    cost.axes[free] = {100, 5};
    Prices dear(cost, mesh, 1);
    d.steps->share_replicas(d.s, d.t, dear, d.step);
    EXPECT_EQ(d.step.group, own);
    cost.axes[free] = {90, 4};
    Prices cheap(cost, mesh, 1);
    d.steps->share_replicas(d.s, d.t, cheap, d.step);
    EXPECT_EQ(d.step.group, 0b11u);
  }
}

TEST(Fillable, PartialsOfOneKindThatHaveAnIdentity) {
  using enum ReduceOp;
  EXPECT_EQ(fillable({}), 0u);
  auto of = [](std::vector<Partial> list) { return fillable(list); };
  EXPECT_EQ(of({{0, kSum}}), 0b1u);
  EXPECT_EQ(of({{0, kSum}, {2, kSum}}), 0b101u);
  EXPECT_EQ(of({{1, kMax}}), 0b10u);
  EXPECT_EQ(of({{0, kAvg}}), 0u);
  EXPECT_EQ(of({{0, kMean}}), 0u);
  EXPECT_EQ(of({{0, kSum}, {1, kAvg}}), 0b1u);
  EXPECT_EQ(of({{0, kSum}, {1, kMax}}), 0u);
  EXPECT_EQ(of({{0, kMax}, {1, kSum}, {2, kSum}}), 0u);
}

}  // namespace
}  // namespace dtensor
