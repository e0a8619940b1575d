// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/cost.h"

#include <gtest/gtest.h>

namespace dtensor {
namespace {

constexpr StepKind kAny = StepKind::kAllGather;

TEST(Cost, CollectiveIsAlphaPlusBytes) {
  CostTable t;
  EXPECT_EQ(t.collective_ps(kAny, 1, 0), 5'000'000);
  EXPECT_EQ(t.collective_ps(kAny, 1, 1000), 5'000'000 + 50'000);
  EXPECT_EQ(t.collective_ps(kAny, 0, 1000), 0)
      << "without a group nothing is sent";
}

TEST(Cost, SeveralAxesCostAsTheDearest) {
  CostTable t;
  t.axes = {{100, 4}, {70, 9}};
  EXPECT_EQ(t.collective_ps(kAny, 0b01, 10), 140);
  EXPECT_EQ(t.collective_ps(kAny, 0b10, 10), 160);
  EXPECT_EQ(t.collective_ps(kAny, 0b11, 10), 190);
  // An axis beyond the table costs as the default.
  EXPECT_EQ(t.collective_ps(kAny, 0b100, 10), 5'000'500);
  EXPECT_EQ(t.collective_ps(kAny, 0b101, 10), 5'000'500);
}

TEST(Cost, KindsAndGroupsMayHaveTheirOwnPrice) {
  CostTable t;
  t.axes = {{100, 4}, {70, 9}};
  t.axes[0].kinds[static_cast<size_t>(StepKind::kReduceScatter)] = {300, 12};
  EXPECT_EQ(t.collective_ps(StepKind::kReduceScatter, 0b01, 10), 420);
  EXPECT_EQ(t.collective_ps(StepKind::kAllGather, 0b01, 10), 140);
  EXPECT_EQ(t.collective_ps(StepKind::kReduceScatter, 0b11, 10), 420);
  t.groups.push_back({0b11, {10, 1}});
  EXPECT_EQ(t.collective_ps(StepKind::kReduceScatter, 0b11, 10), 20);
  EXPECT_EQ(t.collective_ps(StepKind::kReduceScatter, 0b01, 10), 420);
}

TEST(Cost, LargeMessagesDoNotWrap) {
  CostTable t;
  EXPECT_EQ(t.collective_ps(kAny, 1, int64_t{1} << 40),
            5'000'000 + (int64_t{1} << 40) * 50);
}

TEST(Cost, WorkIsFlopsOrMemoryWhicheverIsMore) {
  CostTable t;
  EXPECT_EQ(t.work_ps(1000, 10), 10'000);
  EXPECT_EQ(t.work_ps(10, 1000), 100'000);
  EXPECT_EQ(t.work_ps(0, 0), 0);
}

TEST(Cost, Text) {
  CostTable t;
  EXPECT_EQ(t.to_string(), "alpha 5 us, 20 GB/s, 100 GFLOP/s per rank");
  t.axes = {{1'500'000, 100}};
  t.ps_per_flop = 1;
  EXPECT_EQ(t.to_string(), "alpha 1.5 us, 10 GB/s, 1000 GFLOP/s per rank");
}

}  // namespace
}  // namespace dtensor
