// SPDX-License-Identifier: Apache-2.0
// On every rank, a collective inside an operator costs the bytes of the rank
// that receives most. If each rank paid its own, uneven parts could exceed the
// budget on some ranks only, and these would throw while the others wait.
#include "dtensor/scopes.h"

#include <gtest/gtest.h>

#include <atomic>

#include "dtensor/comm_event.h"
#include "dtensor/ops/attention.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/norm.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

// The 5 rows are split over `a`, so ranks have 2 or 3 of them, and the columns
// over b.
constexpr int64_t kInside = 3 * 8 * 2;  // bytes: 2 sums of 3 rows over 2 ranks

TEST(Budgets, ReachEveryRankAlike) {
  const Mesh mesh = Mesh::parse("a=2,b=2");
  for (int64_t budget : {kInside - 1, kInside}) {
    std::atomic<int> refused = 0, done = 0;
    run(4, [&](Runtime&) {
      const DistTensor x = randn({5, 6}, mesh, "S0,S1", DType::kF64, {1, 1});
      CommBudget scope(budget);
      const std::string e = testing::error_of([&] { softmax(x, 1); });
      refused += e.find("the budget has") != e.npos;
      done += e == "no error" && scope.left() == 0;
    });
    EXPECT_EQ(refused, budget < kInside ? 4 : 0) << budget;
    EXPECT_EQ(done, budget < kInside ? 0 : 4) << budget;
  }
}

TEST(Budgets, AreNotNegative) {
  run(1, [](Runtime&) {
    const NoComm none;
    EXPECT_EQ(testing::error_of([] { CommBudget(-1); }),
              "[CommBudget] the budget is -1 bytes; write 0 or more, or leave "
              "the scope out");
    EXPECT_EQ(none.left(), 0);
  });
}

TEST(Budgets, PredictTheSameOnEveryRank) {
  const Mesh mesh = Mesh::parse("a=2,b=3");
  std::vector<std::vector<int64_t>> predicted(6), counted(6);
  run(6, [&](Runtime& rt) {
    rt.context().record = true;
    const DistTensor x = randn({5, 7}, mesh, "S0,S1", DType::kF64, {1, 1});
    log_softmax(x, 1);
    layer_norm(x, randn({7}, mesh, "R,S0", DType::kF64, {1, 2}),
               randn({7}, mesh, "R,S0", DType::kF64, {1, 3}));
    const auto rank = static_cast<size_t>(rt.rank());
    for (const CommEvent& e : rt.context().events) {
      predicted[rank].push_back(e.predicted);
      counted[rank].push_back(e.counted);
    }
  });
  ASSERT_FALSE(predicted[0].empty());
  for (const auto& p : predicted) EXPECT_EQ(p, predicted[0]);
  for (size_t i = 0; i < predicted[0].size(); ++i) {
    int64_t most = 0;
    for (const auto& c : counted) most = std::max(most, c[i]);
    EXPECT_EQ(most, predicted[0][i]) << i;
  }
}

TEST(Budgets, ExactlySpentIsEnough) {
  const Mesh mesh = Mesh::parse("tp=2");
  run(2, [&](Runtime&) {
    const DistTensor x = randn({8}, mesh, "S0", DType::kF64, {1, 1});
    {
      CommBudget scope(32);  // 4 elements of 8 bytes
      x.redistribute("R");
      EXPECT_EQ(scope.left(), 0);
    }
    const DistTensor a = randn({4, 2}, mesh, "S0", DType::kF64, {1, 2});
    const DistTensor b = randn({2, 4}, mesh, "S1", DType::kF64, {1, 3});
    int64_t needed = 0;
    {
      CommBudget scope(1 << 20);
      matmul(a, b);
      needed = (1 << 20) - scope.left();
      ASSERT_GT(needed, 0);
    }
    const DistTensor c = randn({4, 2}, mesh, "S0", DType::kF64, {1, 4});
    const DistTensor d = randn({2, 4}, mesh, "S1", DType::kF64, {1, 5});
    {
      CommBudget scope(needed - 1);
      EXPECT_NE(testing::error_of([&] { matmul(c, d); }), "no error");
      EXPECT_EQ(scope.left(), needed - 1);
    }
    CommBudget scope(needed);
    matmul(c, d);
    EXPECT_EQ(scope.left(), 0);
  });
}

}  // namespace
}  // namespace dtensor
