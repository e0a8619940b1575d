// A decode loop: keys and values in tensors with room, one more at every step.
#include <gtest/gtest.h>

#include <vector>

#include "dtensor/dist_tensor_impl.h"
#include "dtensor/ops/attention.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/decision.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/bounded_cache.h"
#include "dtensor/placement/spec.h"
#include "dtensor/runtime.h"
#include "dtensor/scopes.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;

void expect_near(const DistTensor& a, const DistTensor& b) {
  const std::vector<double> x = a.full().to_doubles(),
                            y = b.full().to_doubles();
  ASSERT_EQ(x.size(), y.size());
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], 1e-9);
}

// Sequence whole, split and listed, heads split unevenly.
TEST(Decode, TakesNoNewDecisionAfterTheSecondStep) {
  for (const char* cache : {"S2,R", "R,S1", "S1@0|3|10000,S2"}) {
    const int64_t steps = std::string_view(cache) == "S2,R" ? 10000 : 300;
    run(4, [&](Runtime& rt) {
      const NoGrad no_grad;
      const Mesh mesh = rt.mesh({{"a", 2}, {"b", 2}});
      const Shape room{1, 10000, 3, 2};
      const DistTensor k = zeros(room, mesh, cache, DType::kF64),
                       v = zeros(room, mesh, cache, DType::kF64);
      const DistTensor x = randn({1, 1, 3, 2}, mesh, "S2,R", DType::kF64, {1});
      const DistTensor positions =
          randn({10000, 2}, mesh, {}, DType::kF64, {2});
      CacheUse decisions;
      int64_t plans = 0;
      for (int64_t n = 1; n <= steps; ++n) {
        const DistTensor at = narrow(positions, 0, n - 1, 1);
        const DistTensor q = rotary(x + at, 10000, n - 1);
        copy_into(k, q * 0.5, 1, n - 1);
        copy_into(v, x - at, 1, n - 1);
        const DistTensor y = attention(q, k, v, {.causal = true, .length = n});
        if (n == 2) {
          decisions = decision_use(rt.context());
          plans = rt.context().planner.plan_use().misses;
        }
        if (n < steps) continue;
        EXPECT_EQ(decision_use(rt.context()).misses, decisions.misses);
        EXPECT_EQ(rt.context().planner.plan_use().misses, plans);
        EXPECT_LE(Spec::use().entries, 64u);
        expect_near(y, attention(q, narrow(k, 1, 0, n), narrow(v, 1, 0, n)));
      }
    });
  }
}

TEST(Decode, CopiesIntoEveryPart) {
  for (const char* layout : {"R,R", "S0,R", "S1,S0", "S0@0|1|5,S1", "S0,S0"})
    for (const char* from : {"R,R", "S0,S1", "P,R"})
      run(4, [&](Runtime& rt) {
        const NoGrad no_grad;
        const Mesh mesh = rt.mesh({{"a", 2}, {"b", 2}});
        const DistTensor x = zeros({5, 3}, mesh, layout, DType::kF64);
        const DistTensor rows =
            randn({2, 3}, mesh, {}, DType::kF64, {1}).redistribute(from);
        const DistTensor before = x.redistribute("R,R");
        copy_into(x, rows, 0, 2);
        expect_near(narrow(x, 0, 2, 2), rows);
        expect_near(narrow(x, 0, 0, 2), zeros({2, 3}, mesh, {}, DType::kF64));
        expect_near(narrow(x, 0, 4, 1), zeros({1, 3}, mesh, {}, DType::kF64));
        expect_near(x.redistribute("R,R") - before, x);
        EXPECT_NE(
            error_of([&] { copy_into(x, rows, 0, 4); }).find("from index"),
            std::string::npos);
      });
}

}  // namespace
}  // namespace dtensor
