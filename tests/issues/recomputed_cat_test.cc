// SPDX-License-Identifier: Apache-2.0
// The layout of cat() depended on whether an empty piece wanted a gradient when
// it ran, so that checkpoint() refused the second run.
#include <gtest/gtest.h>

#include "dtensor/dtensor.h"

namespace dtensor {
namespace {

TEST(RecomputedCat, OfAnEmptyPieceHasOneLayout) {
  run(2, [](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"x", 2}});
    const auto empty = zeros({0}, mesh, "S0", DType::kF64).set_requires_grad();
    const auto x = ones({2}, mesh, "P", DType::kF64).set_requires_grad();
    const auto y = checkpoint(
        [&](const DistTensor& v) {
          return cat({v, mul(empty, 2.0)}, 0);
        },
        x);
    EXPECT_EQ(y.shape(), Shape{2});
    const auto g = grad(sum(y), {x, empty});
    EXPECT_EQ(g[0].to_string(), "f64[2](R) [1, 1]");
    EXPECT_EQ(g[1].shape(), Shape{0});
  });
}

}  // namespace
}  // namespace dtensor
