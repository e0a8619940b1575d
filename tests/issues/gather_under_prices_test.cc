// SPDX-License-Identifier: Apache-2.0
// A parameter that is gathered on use could not be made if a sequence of other
// steps was cheaper than the gather, as between nodes of GPUs: a group of all
// ranks uses the network cards of all of them, and one of a rank of each node a
// single card.
#include <gtest/gtest.h>

#include <algorithm>

#include "dtensor/dtensor.h"
#include "dtensor/rank_context.h"

namespace dtensor {
namespace {

CostTable between_nodes() {
  CostTable cost;
  const AxisCost slow{{1000, 1000.0}, {}}, fast{{1000, 1.0}, {}};
  cost.axes = {slow, fast};
  cost.groups = {{0b11, fast}};
  return cost;
}

void check(bool dry) {
  RunOptions options;
  options.world = 4;
  options.cost = between_nodes();
  options.dry_run = dry;
  run(options, [&](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"fsdp", 2}, {"tp", 2}});
    const Spec* at =
        Spec::get(mesh, {64, 32},
                  parse_layout("[{tp,fsdp},{}]", mesh, {64, 32}), DType::kF32);
    DistTensor w = reshape(arange(0, 64 * 32, 1, mesh), {64, 32})
                       .redistribute("[{tp,fsdp},{}]");
    // Otherwise the test shows nothing.
    const Plan plan = rt.context().planner.plan(
        at, at->with(parse_layout("R,S0", mesh, {64, 32})));
    EXPECT_TRUE(
        std::any_of(plan.steps.begin(), plan.steps.end(), [](const Step& s) {
          return sends(s.kind) && s.kind != StepKind::kAllGather;
        }));
    w.gather_on_use({{"tp", Shard(0)}});
    const DistTensor x = full({8, 32}, 1.0, mesh, {{"fsdp", Shard(0)}});
    const DistTensor y = matmul(x, transpose(w, 0, 1));
    const DistTensor g = grad(sum(y), {w})[0];
    EXPECT_EQ(g.spec(), w.spec());
    if (dry) return;
    EXPECT_DOUBLE_EQ(sum(y).item(), 8.0 * 2047 * 2048 / 2);
    EXPECT_DOUBLE_EQ(sum(g).item(), 8.0 * 64 * 32);
  });
}

TEST(GatherUnderPrices, InADryRun) { check(true); }
TEST(GatherUnderPrices, OnRanks) { check(false); }

// It may still not be re-split, whatever the plan for that looks like.
TEST(GatherUnderPrices, OtherMovesAreRefused) {
  RunOptions options;
  options.world = 4;
  options.cost = between_nodes();
  EXPECT_THROW(run(options,
                   [](Runtime& rt) {
                     const Mesh mesh = rt.mesh({{"fsdp", 2}, {"tp", 2}});
                     full({64, 32}, 1.0, mesh, {{"tp", Shard(0)}})
                         .gather_on_use({{"tp", Shard(1)}});
                   }),
               Error);
}

}  // namespace
}  // namespace dtensor
