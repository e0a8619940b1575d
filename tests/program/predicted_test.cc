// SPDX-License-Identifier: Apache-2.0
// The predicted time of a dry run, compared with a sum of its parts by hand.
#include "dtensor/program/predicted.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"

namespace dtensor {
namespace {

// 7 ps per flop, 11 ps per byte of memory; messages: 3 us, and 13 ps per byte.
CostTable prices() {
  CostTable cost;
  cost.ps_per_flop = 7;
  cost.ps_per_local_byte = 11;
  cost.axes = {{{3'000'000, 13}}};
  return cost;
}

TEST(Predicted, AddsOperatorsAndCollectives) {
  const Mesh mesh = Mesh::parse("tp=2");
  const auto work = std::make_shared<WorkCounter>();
  RunOptions options;
  options.world = 2;
  options.dry_run = options.record = true;
  options.cost = prices();
  options.observers = {work};
  std::vector<CommEvent> events;
  run(options, [&](Runtime& rt) {
    const DistTensor x = zeros({64, 32}, mesh, {{"tp", Shard(1)}});
    const DistTensor w = zeros({32, 48}, mesh, {{"tp", Shard(0)}});
    matmul(x, w).redistribute("R");
    events = rt.context().events;
  });
  const Predicted step = predicted({events, {}, work->work_ps()}, options.cost);
  // A product of 64 x 16 and 16 x 48, and an all-reduce, in which a rank
  // receives half of the result twice.
  EXPECT_EQ(step.bytes, 64 * 48 * 4);
  EXPECT_EQ(step.work_ps, 2 * 64 * 16 * 48 * 7);
  EXPECT_EQ(step.communication_ps, 3'000'000 + 64 * 48 * 4 * 13);
  EXPECT_EQ(step.total_ps(), step.work_ps + step.communication_ps);
}

TEST(Predicted, SaysItsUnitsAndPrices) {
  const Predicted step{0, 2'500'000'000, 500'000'000};
  EXPECT_EQ(to_string(step, prices()),
            "predicted time: 3.000 ms (operators 2.500 ms, communication 0.500 "
            "ms); " +
                basis_of_times(prices()));
  const std::string basis = basis_of_times(prices());
  EXPECT_EQ(basis.find("times as if nothing overlapped, by these prices: "), 0u)
      << basis;
  EXPECT_NE(basis.find(prices().to_string()), basis.npos) << basis;
  EXPECT_NE(basis.find(", 90.9091 GB/s of its memory"), basis.npos) << basis;
  EXPECT_EQ(to_json(step).dump(),
            R"({"work_us":2500.0,"communication_us":500.0,"us":3000.0})");
}

// A training step calls ended(): what runs after it is not part of the step.
TEST(Predicted, CountsUntilTheStepHasEnded) {
  const auto counter = std::make_shared<WorkCounter>();
  RunOptions options;
  options.dry_run = options.record = true;
  options.observers = {counter};
  options.cost = prices();
  for (int64_t runs = 1; runs <= 2; ++runs) {
    run(options, [&](Runtime& rt) {
      RankContext& context = rt.context();
      const DistTensor x = zeros({4, 6}, rt.mesh({{"tp", 1}}));
      const DistTensor w = zeros({6, 2}, x.mesh());
      matmul(x, w);
      EXPECT_TRUE(counter->reads_events(context));
      counter->ended(context);
      EXPECT_FALSE(counter->reads_events(context));
      matmul(x, w);
    });
    // The product reads 24 and 12 numbers and writes 8, which takes longer than
    // its 96 operations.
    EXPECT_EQ(counter->work_ps(), runs * (24 + 12 + 8) * 4 * 11);
  }
}

}  // namespace
}  // namespace dtensor
