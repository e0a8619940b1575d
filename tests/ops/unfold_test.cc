// SPDX-License-Identifier: Apache-2.0
// fold(), of which torch has no cases; bytes and errors.
#include "dtensor/ops/unfold.h"

#include <gtest/gtest.h>

#include <vector>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;

std::vector<double> doubles(const DistTensor& x) {
  return x.full().to_doubles();
}

TEST(Fold, AddsWhereWindowsOverlap) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    // Windows of two elements in a row of three, one of them for each column.
    const double kX[] = {1, 2, 10, 20};
    for (const char* layout : {"R", "S1", "S0"}) {
      const DistTensor x =
          DistTensor::from_global(Tensor::from(Shape{2, 2}, kX), mesh, layout)
              .set_requires_grad();
      const DistTensor y = fold(x, {1, 3}, {1, 2});
      EXPECT_EQ(y.shape(), (Shape{1, 1, 3})) << layout;
      EXPECT_EQ(doubles(y), (std::vector<double>{1, 12, 20})) << layout;
      EXPECT_EQ(doubles(grad(sum(y * y), {x})[0]),
                (std::vector<double>{2, 24, 24, 40}))
          << layout;
    }
  });
}

// Windows of 3 with a stride of 1 reach one row of each neighbour.
TEST(Unfold, SendsOnlyTheHalo) {
  const Mesh mesh = Mesh::parse("a=4");
  run(4, [&](Runtime& rt) {
    const DistTensor x = zeros({2, 3, 16, 50}, mesh, "S2", DType::kF64);
    RankContext& ctx = RankContext::current();
    ctx.record = true;
    ctx.events.clear();
    unfold(x, {3}, {.padding = {1}});
    ctx.record = false;
    const int64_t neighbours = rt.rank() == 0 || rt.rank() == 3 ? 1 : 2;
    ASSERT_EQ(ctx.events.size(), 1u);
    EXPECT_EQ(ctx.events[0].counted, 8 * 2 * 3 * 50 * neighbours);
  });
}

TEST(Unfold, RefusesInASentence) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const auto of = [&](Shape s) { return zeros(s, mesh, {}, DType::kF32); };
    EXPECT_EQ(error_of([&] {
                unfold(of({1, 2, 3, 3}), {4});
              }),
              "[unfold] the image has 3 elements in dimension 0 of space, with "
              "padding, but a window spans 4; pad more, or take a smaller "
              "window");
    EXPECT_EQ(error_of([&] {
                fold(of({1, 6, 3}), {3}, {2});
              }),
              "[fold] x has shape [1, 6, 3], but windows of 4 elements, 4 of "
              "them, need a multiple of 4 and 4 in its last two dimensions; "
              "pass such an x, or other sizes");
  });
}

}  // namespace
}  // namespace dtensor
