// SPDX-License-Identifier: Apache-2.0
// A number that no decision depends on makes no decision: a program with a new
// factor at every step kept 2.7 KB for each. And the others are bounded.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "dtensor/execution.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/decision.h"
#include "dtensor/ops/norm.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/redistribute.h"
#include "dtensor/runtime.h"

namespace dtensor {
namespace {

TEST(Decisions, DoNotGrowWithNumbers) {
  run(1, [](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"x", 1}});
    const DistTensor x = randn({2, 3}, mesh, {}, DType::kF64, {1, 1});
    const DistTensor g = ones({3}, mesh, {}, DType::kF64);
    auto step = [&](int i) {
      const double v = 1 + 1e-3 * i;
      clamp(pow(dropout(x * v + v, 0.5 / v, {1, 2}), v), -v, v);
      rms_norm(x, g, v);
    };
    step(0);
    const size_t before = decision_use(rt.context()).entries;
    for (int i = 1; i < 50; ++i) step(i);
    EXPECT_EQ(decision_use(rt.context()).entries, before);
    EXPECT_GE(decision_use(rt.context()).hits, 49 * 6);
    // The number is taken all the same.
    EXPECT_DOUBLE_EQ((x * 3.0).local().at(0), 3 * x.local().at(0));
  });
}

TEST(Decisions, AreBounded) {
  RunOptions options;
  options.world = 1;
  options.dry_run = true;
  run(options, [](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"x", 1}});
    const DistTensor x = zeros({1 << 20}, mesh, {}, DType::kF32);
    const size_t most = decision_use(rt.context()).limit;
    for (size_t i = 0; i < most + 100; ++i)
      slice(x, 0, static_cast<int64_t>(i), static_cast<int64_t>(i) + 1);
    EXPECT_LE(decision_use(rt.context()).entries, most);
    EXPECT_LE(most, size_t{1} << 14);
  });
}

// What moves need to run is kept by its weight.
TEST(Executions, AreBounded) {
  RunOptions options;
  options.world = 2;
  options.dry_run = true;
  run(options, [](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"x", 2}});
    // Together, so that each list is heavy.
    const auto move = [&](int64_t n) {
      std::vector<DistTensor> list;
      std::vector<SpecRef> to;
      for (int64_t i = 0; i < 16; ++i) {
        list.push_back(zeros({n + i}, mesh, "S0", DType::kF32));
        to.push_back(Spec::replicated(mesh, {n + i}, DType::kF32));
      }
      relayout(list, to);
    };
    const CacheUse before = execution_use(rt.context());
    move(1);
    const size_t weight = execution_use(rt.context()).weight - before.weight;
    ASSERT_GE(weight, 50u);
    const int64_t moves = static_cast<int64_t>(2 * before.limit / weight);
    for (int64_t i = 0; i < moves; ++i) move(2 + i);
    const CacheUse after = execution_use(rt.context());
    EXPECT_LE(after.weight, after.limit);
    EXPECT_GE(after.weight, after.limit / 3);
    // The latest is known.
    move(1 + moves);
    EXPECT_EQ(execution_use(rt.context()).misses, after.misses);
  });
}

}  // namespace
}  // namespace dtensor
