// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/prices.h"

#include <gtest/gtest.h>

#include <limits>

#include "dtensor/placement/plan.h"
#include "dtensor/placement/spec.h"

namespace dtensor {
namespace {

TEST(Prices, AlphasArePaidForEachChunk) {
  CostTable table;
  table.axes = {{{7, 3}}, {{5, 11}}};
  Prices whole(table, Mesh::parse("2x2"), 1),
      chunks(table, Mesh::parse("2x2"), 6);
  EXPECT_EQ(whole.step(StepKind::kAllGather, 0b01, 10), 7 + 30);
  EXPECT_EQ(chunks.step(StepKind::kAllGather, 0b01, 10), 6 * 7 + 30);
  EXPECT_EQ(chunks.step(StepKind::kAllGather, 0b11, 10), 6 * 7 + 110);
  EXPECT_EQ(chunks.least_alpha(), 6 * 5);
}

TEST(Prices, NothingIsBelowTheLeast) {
  CostTable table;
  table.axes = {{{7, 3}}, {{5, 11}}};
  Prices p(table, Mesh::parse("2x2"), 1);
  EXPECT_TRUE(p.differ());
  EXPECT_EQ(p.least(10), 5 + 30);
  // Six of ten bytes have to cross the second axis.
  EXPECT_EQ(p.least(10, 6, p.of_axis(1)), 5 + 6 * 11 + 4 * 3);
}

// Nothing crosses an axis of one rank, whatever its price.
TEST(Prices, AnAxisOfOneRankIsNoBound) {
  CostTable table;
  table.axes = {{{7, 3}}, {{1, 1}}};
  Prices p(table, Mesh::parse("4x1"), 1);
  EXPECT_EQ(p.least_alpha(), 7);
  EXPECT_EQ(p.least(10), 7 + 30);
  EXPECT_FALSE(p.differ());
}

TEST(Prices, Saturate) {
  EXPECT_EQ(saturated_ps(2.6), 3);
  EXPECT_EQ(saturated_ps(1e30), kMostPs);
  EXPECT_EQ(saturated_ps(std::numeric_limits<double>::quiet_NaN()), kMostPs);
  CostTable slow;
  slow.axes = {{{std::numeric_limits<int64_t>::max(), 1e300}}};
  slow.ps_per_flop = 1e300;
  EXPECT_EQ(slow.work_ps(1e300, 1), kMostPs);
  Prices p(slow, Mesh::parse("4"), 1 << 20);
  EXPECT_EQ(p.least(1 << 20), 2 * kMostPs);
  EXPECT_EQ(p.step(StepKind::kAllReduce, 1, 100), 2 * kMostPs);
}

// A cost file with 1e-06 GB/s and blocks of one byte: plans stay defined, under
// the sanitizers too.
TEST(Prices, PlansUnderPricesThatOverflowStayDefined) {
  const Mesh mesh = Mesh::parse("tp=4");
  for (double ps_per_byte : {1e9, 1e18, 1e300}) {
    CostTable cost;
    cost.axes = {{{5000000, ps_per_byte}}};
    cost.block_bytes = 1;
    const Shape shape{int64_t{1} << 20, 4096};
    for (const char* from : {"S0", "S1", "P", "P(mean)", "R"}) {
      for (const char* to : {"S0", "S1", "R"}) {
        const Spec* a = Spec::get(mesh, shape, parse_layout(from, mesh, shape),
                                  DType::kF32);
        const Spec* b =
            Spec::get(mesh, shape, parse_layout(to, mesh, shape), DType::kF32);
        const Plan p = plan(a, b, cost);
        EXPECT_GE(p.time_ps, 0);
        EXPECT_LE(p.time_ps, kMostPs);
        if (a != b) {
          EXPECT_EQ(p.steps.back().to, b);
        }
        if (ps_per_byte > 1e9 && p.bytes > 0) {
          EXPECT_EQ(p.time_ps, kMostPs);
        }
        const Move moves[] = {{a, b}, {a, b}, {a, b}};
        EXPECT_LE(plan(moves, cost).time_ps, kMostPs);
      }
    }
  }
}

}  // namespace
}  // namespace dtensor
