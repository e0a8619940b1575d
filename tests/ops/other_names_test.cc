// SPDX-License-Identifier: Apache-2.0
// Functions that torch has under two names or with other arguments.
#include <gtest/gtest.h>

#include <vector>

#include "dtensor/dtensor.h"
#include "tests/ops/structured_testing.h"

namespace dtensor::testing {
namespace {

void same(const DistTensor& a, const DistTensor& b) {
  EXPECT_EQ(a.spec(), b.spec());
  EXPECT_EQ(values(a), values(b));
}

TEST(OtherNames, AreTheFunctions) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const DistTensor x = randn({4, 4}, mesh, "S0", DType::kF64),
                     y = randn({4, 4}, mesh, "S1", DType::kF64);
    same(concat({x, y}, 1), cat({x, y}, 1));
    same(clip(x, 0, 0.5), clamp(x, 0, 0.5));
    same(inverse(x), inv(x));
    same(broadcast_to(x, {2, 4, 4}), expand(x, {2, 4, 4}));
    same(norm(x), vector_norm(x));
    same(max(x), amax(x));
    same(min(x), amin(x));
    same(where(gt(x, 0), 1, 0.5),
         cast(where(gt(x, 0), ones_like(x), 0.5), DType::kF32));
    same(where(gt(x, 0), 1, 0), cast(gt(x, 0), DType::kI64));
    EXPECT_TRUE(dropout(x, 0.5, false).same_as(x));
    EXPECT_NE(values(dropout(x, 0.5, true)), values(x));
    EXPECT_EQ(tensor({1, 2}, mesh, "S0").to_string(), "i64[2](S0) [1, 2]");
    EXPECT_EQ(tensor({true, false}, mesh).to_string(),
              "bool[2](R) [true, false]");
    EXPECT_EQ(tensor({1.5, 2.}, mesh).to_string(), "f32[2](R) [1.5, 2]");
    EXPECT_EQ(empty({3, 2}, mesh, "S0", DType::kBF16).spec()->to_string(),
              "bf16[3, 2](S0)");
    same(layer_norm(x, {4}, x[0], y[1]), layer_norm(x, x[0], y[1]));
    const DistTensor image = randn({2, 3, 4, 6}, mesh, "S0", DType::kF64),
                     flat = reshape(image, {2, 3, 24});
    same(reshape(layer_norm(image, {4, 6}, image[{0, 0}]), {2, 3, 24}),
         layer_norm(flat, flat[{0, 0}]));
    same(max_pool2d(image, 2), max_pool2d(image, {2, 2}, {.stride = {2, 2}}));
    same(avg_pool2d(image, {2, 3}, {.stride = 1}),
         avg_pool2d(image, {2, 3}, {.stride = {1, 1}}));
    same(interpolate(image, 2), interpolate(image, {.size = {2, 2}}));
    const DistTensor q = randn({2, 3, 5, 4}, mesh, "S1", DType::kF64),
                     k = randn({2, 3, 7, 4}, mesh, "S1", DType::kF64);
    const auto turned = [](const DistTensor& t) { return transpose(t, 1, 2); };
    const DistTensor want =
        matmul(softmax(matmul(q, transpose(k, 2, 3)) / 2, -1), k);
    const DistTensor got = scaled_dot_product_attention(q, k, k);
    EXPECT_EQ(got.shape(), want.shape());
    EXPECT_LT(amax(abs(got - want)).item(), 1e-12);
    same(turned(scaled_dot_product_attention(q, q, q, {}, {.causal = true})),
         attention(turned(q), turned(q), turned(q), {.causal = true}));
  });
}

TEST(OtherNames, Errors) {
  EXPECT_EQ(error_of(2,
                     [](const Mesh& mesh) {
                       layer_norm(ones({2, 3, 4}, mesh), Shape{2, 4});
                     }),
            "[layer_norm] f32[2, 3, 4](R) does not end with the dimensions [2, "
            "4]; pass its last sizes");
}

}  // namespace
}  // namespace dtensor::testing
