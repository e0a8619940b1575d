// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/named_cost.h"

#include <gtest/gtest.h>

namespace dtensor {
namespace {

LinkCost link(const CostTable& t, StepKind kind, AxisMask axes) {
  return t.link(kind, axes);
}
double us(const LinkCost& c) { return static_cast<double>(c.alpha_ps) / 1e6; }
double rate(const LinkCost& c) { return 1000 / c.ps_per_byte; }

TEST(NamedCost, OtherNamesHaveNone) {
  EXPECT_EQ(cost_names(), "h100, h200");
  const Mesh mesh({{"tp", 8}});
  for (const char* name : {"", "h", "H100", "h100x", "cost.json"})
    EXPECT_FALSE(named_cost(name, mesh)) << name;
}

// In a node: 6.6 us and 0.6 us a step at 360 GB/s, or 476 if all GPUs reduce.
TEST(NamedCost, AxesOfANode) {
  const CostTable t = *named_cost("h100", Mesh({{"dp", 2}, {"tp", 4}}));
  EXPECT_NEAR(us(link(t, StepKind::kAllGather, 1)), 7.2, 1e-9);
  EXPECT_NEAR(us(link(t, StepKind::kAllGather, 2)), 6.6 + 3 * 0.6, 1e-9);
  EXPECT_NEAR(us(link(t, StepKind::kAllReduce, 2)), 6.6 + 6 * 0.6, 1e-9);
  EXPECT_NEAR(us(link(t, StepKind::kExchange, 2)), 7.2, 1e-9);
  EXPECT_NEAR(rate(link(t, StepKind::kAllReduce, 2)), 360, 1e-9);
  EXPECT_NEAR(rate(link(t, StepKind::kAllReduce, 3)), 476, 1e-9);
  EXPECT_NEAR(rate(link(t, StepKind::kAllGather, 3)), 360, 1e-9);
  EXPECT_NEAR(us(link(t, StepKind::kReduceScatter, 3)), 6.6 + 7 * 0.6, 1e-9);
  // 780e12 flops take a second, 3350e9 bytes too.
  EXPECT_EQ(t.work_ps(780e6, 0), 1'000'000);
  EXPECT_EQ(t.work_ps(0, 3350e3), 1'000'000);
  EXPECT_EQ(named_cost("h200", Mesh({{"tp", 8}}))->work_ps(0, 4800e3),
            1'000'000);
}

// Across four nodes, a group has the network card (47 GB/s) of each of its
// GPUs.
TEST(NamedCost, AxesAcrossNodes) {
  const CostTable t = *named_cost("h100", Mesh({{"dp", 4}, {"tp", 8}}));
  EXPECT_NEAR(rate(link(t, StepKind::kAllGather, 1)), 47, 1e-9);
  EXPECT_NEAR(us(link(t, StepKind::kAllGather, 1)), 6.6 + 3 * 2.7, 1e-9);
  EXPECT_NEAR(us(link(t, StepKind::kAllToAll, 1)), 6.6 + 2.7, 1e-9);
  EXPECT_NEAR(rate(link(t, StepKind::kAllReduce, 2)), 476, 1e-9);
  EXPECT_NEAR(rate(link(t, StepKind::kAllReduce, 3)), 360, 1e-9);  // < 8 x 47
  EXPECT_NEAR(us(link(t, StepKind::kAllReduce, 3)),
              6.6 + 2 * (28 * 0.6 + 3 * 2.7), 1e-9);
  // Two ranks of each node.
  const CostTable u = *named_cost("h100", Mesh({{"a", 2}, {"b", 4}, {"c", 2}}));
  EXPECT_NEAR(rate(link(u, StepKind::kAllGather, 1 | 4)), 94, 1e-9);
}

// The nodes of the ranks count, not the ranks' order in the mesh.
TEST(NamedCost, RanksInAnOrderOfTheirOwn) {
  std::vector<int64_t> ranks;
  for (int64_t i = 0; i < 8; ++i) ranks.insert(ranks.end(), {i, i + 8});
  const CostTable t = *named_cost("h100", Mesh({{"tp", 8}, {"dp", 2}}, ranks));
  EXPECT_NEAR(rate(link(t, StepKind::kAllGather, 1)), 360, 1e-9);
  EXPECT_NEAR(rate(link(t, StepKind::kAllGather, 2)), 47, 1e-9);
}

}  // namespace
}  // namespace dtensor
