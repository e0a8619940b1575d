// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/runtime.h"
#include "tests/ops/structured_testing.h"

namespace dtensor::testing {
namespace {

// The extremum of [a, b, c] over dimensions 0 and 2, and the gradient of
// sum(y * u): shared evenly between those that attain it.
struct Expected {
  Array value, gradient;
};
Expected over_0_and_2(const Array& x, const Array& u, bool max) {
  const int64_t a = x.shape[0], b = x.shape[1], c = x.shape[2];
  Expected e{zeros_like({b}), zeros_like(x.shape)};
  for (int64_t j = 0; j < b; ++j) {
    double best = max ? -INFINITY : INFINITY;
    int64_t ties = 0;
    for (int pass = 0; pass < 3; ++pass)
      for (int64_t i = 0; i < a; ++i)
        for (int64_t k = 0; k < c; ++k) {
          const int64_t at = (i * b + j) * c + k;
          if (pass == 0)
            best = max ? std::max(best, x.at(at)) : std::min(best, x.at(at));
          else if (x.at(at) == best && pass == 1)
            ++ties;
          else if (x.at(at) == best)
            e.gradient.at(at) = u.at(j) / static_cast<double>(ties);
        }
    e.value.at(j) = best;
  }
  return e;
}

TEST(ReduceTest, SeveralDimensionsWithTies) {
  Array x = values({3, 2, 5}, 4);
  for (double& v : x.v) v = std::round(2 * v);  // many are equal
  const Array u = values({2}, 9);
  for (bool max : {true, false}) {
    const Expected want = over_0_and_2(x, u, max);
    for (const Case& c : std::vector<Case>{{"x=1", {"R"}},
                                           {"x=2", {"S0"}},
                                           {"x=3", {"S2"}},
                                           {"x=2", {"S1"}},
                                           {"x=2", {"P(max)"}},
                                           {"x=2", {"P(min)"}},
                                           {"x=2", {"P"}},
                                           {"x=2,y=2", {"S0,S2"}},
                                           {"x=2,y=2", {"S2,S2"}}})
      on_mesh(c.mesh, [&](const Mesh& mesh) {
        DistTensor in = put(x, mesh, c.layouts[0]).set_requires_grad();
        const DistTensor y = max ? amax(in, {0, -1}) : amin(in, {2, 0});
        const std::string label = c.mesh + " " + c.layouts[0];
        expect_near(array_of(y.full()), want.value, 0, label);
        const auto g = grad(y, {in}, {.cotangent = put(u, mesh)});
        expect_near(array_of(g[0].full()), want.gradient, 1e-15, label);
      });
  }
}

TEST(ReduceTest, TiesShareTheGradient) {
  on_mesh("x=2", [](const Mesh& mesh) {
    for (const char* layout : {"R", "S0"}) {
      DistTensor x =
          put({{3}, {3, 3, 1}, DType::kF64}, mesh, layout).set_requires_grad();
      expect_near(array_of(grad(amax(x), {x})[0].full()),
                  {{3}, {0.5, 0.5, 0}, DType::kF64}, 0, layout);
      expect_near(array_of(grad(amin(x), {x})[0].full()),
                  {{3}, {0, 0, 1}, DType::kF64}, 0, layout);
    }
  });
}

TEST(ReduceTest, Errors) {
  const Array x = values({2, 3}, 1);
  EXPECT_EQ(error_of(2,
                     [&](const Mesh& m) {
                       amax(put(x, m), {0, -2});
                     }),
            "[amax] dimension 0 of f64[2, 3](R) is named twice; name it once");
  EXPECT_EQ(error_of(2,
                     [&](const Mesh& m) {
                       amin(zeros({0, 3}, m), {0});
                     }),
            "[amin] dimension 0 of f32[0, 3](R) is empty, so its minimum is "
            "not defined; pass a tensor with elements");
}

// The sum of i32 wrapped around in i32; torch's is i64.

TEST(SumOfI32, IsI64) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  for (const char* layout : {"R", "S0", "S1"})
    run(2, [&](Runtime& rt) {
      const int32_t v[] = {kMost, kMost, 3, kMost};
      const DistTensor x =
          DistTensor::from_global(Tensor::from({2, 2}, v), rt.mesh(), layout);
      const DistTensor all = sum(x), rows = sum(x, {1}), to = sum_to(x, {2, 1});
      for (const DistTensor& y : {all, rows, to})
        EXPECT_EQ(name(y.dtype()), "i64");
      EXPECT_EQ(all.item(), 3.0 * kMost + 3);
      for (const DistTensor& y : {rows, to}) {
        EXPECT_EQ(y.full().at(0), 2.0 * kMost) << layout;
        EXPECT_EQ(y.full().at(1), 3.0 + kMost) << layout;
      }
    });
}

}  // namespace
}  // namespace dtensor::testing
