// SPDX-License-Identifier: Apache-2.0
// A decode loop: tensors have room for more keys and values; each step adds
// one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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
#include "tests/ops/structured_testing.h"
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

// The sequence is whole, split in balance or at points; heads split unevenly.
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

// With a window, older keys and those that do not exist yet are not read, so
// they may have any values.
TEST(Decode, ReadsTheWindowOnly) {
  constexpr int64_t kRoom = 40, kWindow = 5;
  for (const char* cache : {"R,R", "S2,R", "R,S1", "S1@0|3|40,S2"})
    for (const int64_t queries : {1, 3})
      for (const int64_t n : {3, 5, 6, 33, 40})
        run(4, [&](Runtime& rt) {
          const Mesh mesh = rt.mesh({{"a", 2}, {"b", 2}});
          const int64_t first = std::max<int64_t>(n - queries - kWindow + 1, 0);
          const Shape seen{1, n - first, 2, 2};
          const DistTensor k = full({1, kRoom, 2, 2}, NAN, mesh, cache,
                                    DType::kF64),
                           v = full({1, kRoom, 2, 2}, NAN, mesh, cache,
                                    DType::kF64),
                           some_k = randn(seen, mesh, {}, DType::kF64, {1}),
                           some_v = randn(seen, mesh, {}, DType::kF64, {2}),
                           q = randn({1, queries, 4, 2}, mesh, "S2,R",
                                     DType::kF64, {3});
          copy_into(k, some_k, 1, first);
          copy_into(v, some_v, 1, first);
          const DistTensor y = attention(
              q, k, v,
              {.causal = true, .length = n, .window = kWindow, .soft_cap = 2});
          expect_near(y, attention(q, some_k, some_v,
                                   {.causal = true,
                                    .length = n - first,
                                    .window = kWindow,
                                    .soft_cap = 2}));
          if (queries == 1)
            expect_near(y, attention(q, some_k, some_v, {.soft_cap = 2}));
        });
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

// Row i goes to the i-th index. The indices are in no order; -1 drops a row.
TEST(Decode, CopiesRowsToTheirIndices) {
  for (int dim : {0, 1, 2})
    for (const char* layout : {"R,R", "S0,R", "S1,S0", "S2@0|1|4,S1", "S0,S0",
                               "S0(2 h=2:h),S1(a=1|b=3:a,b)"})
      for (const char* from : {"R,R", "S0,S1", "P,R"})
        for (DType t : {DType::kI32, DType::kI64})
          run(4, [&](Runtime& rt) {
            const NoGrad no_grad;
            const Mesh mesh = rt.mesh({{"a", 2}, {"b", 2}});
            const Shape shape{4, 4, 4};
            const DistTensor before = randn(shape, mesh, {}, DType::kF64, {1});
            const DistTensor x = (before * 1).redistribute(layout);
            const Spec* const spec = x.spec();
            Shape part = shape;
            part[dim] = 3;
            const DistTensor rows =
                randn(part, mesh, {}, DType::kF64, {2}).redistribute(from);
            const DistTensor at = testing::put(
                testing::integers({3}, {3, -1, 0}, t), mesh, "S0,R");
            copy_into(x, rows, dim, at);
            EXPECT_EQ(x.spec(), spec);
            expect_near(narrow(x, dim, 0, 1), narrow(rows, dim, 2, 1));
            expect_near(narrow(x, dim, 1, 2), narrow(before, dim, 1, 2));
            expect_near(narrow(x, dim, 3, 1), narrow(rows, dim, 0, 1));
            const DistTensor y = (before * 1).redistribute(layout);
            copy_into(y, rows, dim, 1);
            EXPECT_EQ(y.spec(), spec);
            expect_near(narrow(y, dim, 0, 1), narrow(before, dim, 0, 1));
            expect_near(narrow(y, dim, 1, 3), rows);
          });
}

// A gradient that needs the old values fails on every rank, also on one whose
// part got no row. Else the others would wait for it.
TEST(Decode, CopiesChangeTheTensorOnEveryRank) {
  run(2, [](Runtime& rt) {
    const DistTensor x = ones({4, 2}, rt.mesh(), "S0"),
                     w = ones({4, 2}, rt.mesh(), "S0").set_requires_grad(),
                     y = sum(w * x);
    copy_into(x, zeros({1, 2}, rt.mesh()), 0, 3);
    EXPECT_NE(error_of([&] { grad(y, {w}); }).find("was changed in place"),
              std::string::npos);
  });
}

// i8 is moved like other types; the last rank has no part.
TEST(Decode, CopiesRowsOfI8) {
  run(3, [](Runtime& rt) {
    const NoGrad no_grad;
    const DistTensor x = zeros({2, 3}, rt.mesh(), "S0", DType::kI8),
                     rows = full({1, 3}, -7, rt.mesh(), {}, DType::kI8);
    copy_into(x, rows, 0, testing::put(testing::integers({1}, {1}), rt.mesh()));
    EXPECT_EQ(x.full().to_doubles(),
              (std::vector<double>{0, 0, 0, -7, -7, -7}));
  });
}

// A window of a tensor is not contiguous.
TEST(Decode, CopiesRowsIntoAView) {
  run(2, [](Runtime& rt) {
    const NoGrad no_grad;
    const DistTensor all = zeros({5, 3, 2}, rt.mesh(), "S1", DType::kF64),
                     x = select(all, 2, 1),
                     rows = ones({2, 3}, rt.mesh(), {}, DType::kF64);
    copy_into(x, rows, 0,
              testing::put(testing::integers({2}, {4, 1}), rt.mesh()));
    expect_near(select(narrow(all, 0, 4, 1), 2, 1), narrow(rows, 0, 0, 1));
    expect_near(select(all, 2, 0), zeros({5, 3}, rt.mesh(), {}, DType::kF64));
    EXPECT_EQ(sum(all).item(), 6);
  });
}

TEST(Decode, RefusesIndicesThatDoNotExist) {
  run(2, [](Runtime& rt) {
    const NoGrad no_grad;
    const DistTensor x = zeros({5, 3}, rt.mesh(), "S1", DType::kF64),
                     rows = ones({2, 3}, rt.mesh(), {}, DType::kF64);
    const auto error = [&](const Shape& shape, std::vector<double> at,
                           DType t = DType::kI64) {
      return error_of([&] {
        copy_into(x, rows, 0,
                  testing::put(testing::integers(shape, std::move(at), t),
                               rt.mesh()));
      });
    };
    EXPECT_EQ(error({2}, {0, 5}),
              "[copy_into] index 5 is not in [0, 5), the indices of dimension "
              "0 of the tensor; pass indices in that range");
    EXPECT_EQ(error({2}, {-2, 0}),
              "[copy_into] index -2 is not in [0, 5), the indices of dimension "
              "0 of the tensor; pass indices in that range");
    EXPECT_EQ(
        error({3}, {0, 1, 2}),
        "[copy_into] f64[2, 3](R) does not fit into dimension 0 of f64[5, "
        "3](S1) at the indices i64[3](R); pass rows of the same type and, in "
        "other dimensions, of the same sizes, one for each index");
    EXPECT_EQ(error({2, 1}, {0, 1}),
              "[copy_into] the indices are i64[2, 1](R); write a vector of i32 "
              "or i64, with one index for each row");
    EXPECT_NE(error({2}, {0, 1}, DType::kF32).find("the indices are f32[2]"),
              std::string::npos);
    EXPECT_EQ(sum(x).item(), 0);
  });
}

}  // namespace
}  // namespace dtensor
