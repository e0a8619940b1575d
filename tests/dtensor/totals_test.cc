// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "dtensor/comm_table.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "dtensor/tensor.h"

namespace dtensor {
namespace {

Totals of_rank(int64_t r) {
  return {.events = {{.mesh = Mesh::parse("x=3"),
                      .axes = 1,
                      .kind = StepKind::kAllReduce,
                      .op = "grad",
                      .phase = "backward",
                      .predicted = 10 + r,
                      .counted = 20 - r,
                      .by_all = 42}},
          .memory = {.kinds = {r, 5, -r, 0, 1}, .peak = 7 * r},
          .work_ps = 100 - r};
}

void check(const Totals& all) {
  ASSERT_EQ(all.events.size(), 1u);
  EXPECT_EQ(all.events[0].predicted, 12);
  EXPECT_EQ(all.events[0].counted, 20);
  EXPECT_EQ(all.events[0].by_all, 42);
  EXPECT_EQ(all.memory.kinds,
            (std::array<int64_t, kMemoryKinds>{2, 5, 0, 0, 1}));
  EXPECT_EQ(all.memory.peak, 14);
  EXPECT_EQ(all.work_ps, 100);
}

TEST(Totals, OfRanksAreTheLargest) {
  check(merge(std::vector<Totals>{of_rank(0), of_rank(1), of_rank(2)}));
}

TEST(Totals, AreTheSameOnEveryRank) {
  run(3, [](Runtime& rt) { check(merge(of_rank(rt.rank()))); });
}

TEST(Totals, OfMemoryAreTheMostThatWasHeld) {
  run(1, [](Runtime& rt) {
    Allocator& allocator = *rt.context().allocator;
    const MemoryUse before = memory_use(allocator);
    { const Tensor t = Tensor::empty({1000}, DType::kF64); }
    const MemoryUse after = memory_use(allocator);
    EXPECT_GE(after.peak, before.peak);
    EXPECT_GE(after.peak, 8000);
    EXPECT_EQ(memory_use(allocator).kinds, after.kinds);
  });
}

}  // namespace
}  // namespace dtensor
