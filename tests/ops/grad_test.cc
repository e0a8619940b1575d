// grad(): what is asked for inside the graph, and what is not in it.
#include "dtensor/ops/grad.h"

#include <gtest/gtest.h>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/random.h"
#include "dtensor/placement/error.h"
#include "dtensor/runtime/runtime.h"

namespace dtensor {
namespace {

constexpr DType kF64 = DType::kF64;

// A gradient goes to a tensor in the middle, and through it.
TEST(Grad, OfATensorInsideTheGraph) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    DistTensor w = full({4}, 3, m, "S0", kF64).set_requires_grad();
    const DistTensor h = w * 2.0, loss = sum(h * h * 5.0);
    const auto g = grad(loss, {h, w, loss});
    EXPECT_EQ(g[0].to_string(), "f64[4](S0) [60, 60, 60, 60]");
    EXPECT_EQ(g[1].to_string(), "f64[4](S0) [120, 120, 120, 120]");
    EXPECT_EQ(g[2].item(), 1);
    EXPECT_EQ(grad(loss, {w})[0].full().at(0), 120);
    EXPECT_EQ(grad(loss, {h})[0].full().at(0), 60);
  });
}

// What a tensor is used for arrives from all sides before it goes on: y is used
// by the sum and, one step earlier, by the product.
TEST(Grad, OfATensorThatIsUsedAtSeveralDepths) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    DistTensor x = full({3}, 3, m, "S0", kF64).set_requires_grad();
    const DistTensor y = x * 2.0;
    const auto g = grad(sum(y + y * y), {x});  // 2 (1 + 2 y)
    EXPECT_EQ(g[0].to_string(), "f64[3](S0) [26, 26, 26]");
  });
}

TEST(Grad, OfATensorThatCountsForNothing) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    DistTensor w = full({4}, 3, m, "S0", kF64).set_requires_grad();
    DistTensor other = full({2}, 3, m, {}, kF64).set_requires_grad();
    const DistTensor unused = w * 2.0;
    const auto g = grad(sum(w), {other, unused, w});
    EXPECT_EQ(g[0].to_string(), "f64[2](R) [0, 0]");
    EXPECT_EQ(g[1].to_string(), "f64[4](S0) [0, 0, 0, 0]");
    EXPECT_EQ(g[2].to_string(), "f64[4](S0) [1, 1, 1, 1]");
    EXPECT_THROW(grad(sum(w), {full({2}, 3, m)}), Error);
    EXPECT_THROW(grad(w, {w}), Error);
    EXPECT_THROW(grad(sum(full({2}, 3, m)), {w}), Error);
    EXPECT_THROW(grad(w, {w}, {.cotangent = ones({3}, m)}), Error);
  });
}

}  // namespace
}  // namespace dtensor
