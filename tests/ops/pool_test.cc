// SPDX-License-Identifier: Apache-2.0
// Pools: ties, NaN, bytes and errors. torch's cases have the values.
#include "dtensor/ops/pool.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;

std::vector<double> doubles(const DistTensor& x) {
  return x.full().to_doubles();
}

TEST(MaxPool, TheFirstOfEqualElementsHasTheGradient) {
  const Mesh mesh = Mesh::parse("a=3");
  run(3, [&](Runtime&) {
    const double kX[] = {2, 5, 5, 1, 5, 0, 3, 3};
    for (const char* layout : {"R", "S1"}) {
      const DistTensor x =
          DistTensor::from_global(Tensor::from(Shape{1, 8}, kX), mesh, layout)
              .set_requires_grad();
      const DistTensor y = max_pool1d(x, {3}, {.stride = {1}});
      EXPECT_EQ(doubles(y), (std::vector<double>{5, 5, 5, 5, 5, 3})) << layout;
      EXPECT_EQ(doubles(grad(sum(y), {x})[0]),
                (std::vector<double>{0, 2, 1, 0, 2, 0, 1, 0}))
          << layout;
    }
  });
}

TEST(MaxPool, NaNIsTheLargest) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double x[] = {1, nan, 7, 8, 2, 3};
    const std::vector<double> y = doubles(max_pool1d(
        DistTensor::from_global(Tensor::from(Shape{1, 6}, x), mesh, "S1"),
        {2}));
    EXPECT_TRUE(std::isnan(y[0]));
    EXPECT_EQ(y[1], 8);
    EXPECT_EQ(y[2], 3);
  });
}

// Of the taps at rows -2, 0, 2 and 4, the second one is the first in x.
TEST(MaxPool, DilatedTapsInThePadding) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const double kX[] = {9, 1, 2, 3};
    for (const char* layout : {"R", "S2"}) {
      const auto [y, at] = max_pool2d_with_indices(
          DistTensor::from_global(Tensor::from(Shape{1, 1, 4, 1}, kX), mesh,
                                  layout),
          {4, 1}, {.stride = {1}, .padding = {2, 0}, .dilation = {2, 1}});
      EXPECT_EQ(doubles(y), (std::vector<double>{9, 3})) << layout;
      EXPECT_EQ(doubles(at), (std::vector<double>{0, 3})) << layout;
    }
  });
}

// Windows of 3 with a stride of 1 reach one row of each neighbour. In the
// backward pass, the cotangent's rows and their taps travel, 8 bytes each.
TEST(MaxPool, SendsOnlyTheHalo) {
  const Mesh mesh = Mesh::parse("a=4");
  run(4, [&](Runtime& rt) {
    const DistTensor x = randn({2, 3, 16, 500}, mesh, "S2", DType::kF64, {1, 1})
                             .set_requires_grad();
    RankContext& ctx = rt.context();
    ctx.record = true;
    const DistTensor y = max_pool2d(x, {3}, {.stride = {1}, .padding = {1}});
    EXPECT_EQ(y.layout().to_string(mesh), "S2");
    const int64_t neighbours = rt.rank() == 0 || rt.rank() == 3 ? 1 : 2;
    const int64_t row = 2 * 3 * 500 * neighbours;
    ASSERT_EQ(ctx.events.size(), 1u);
    EXPECT_EQ(ctx.events[0].counted, 8 * row);
    ctx.events.clear();
    grad(sum(y * y), {x});
    int64_t counted = 0;
    for (const CommEvent& e : ctx.events)
      if (e.kind == StepKind::kAllToAll) counted += e.counted;
    EXPECT_EQ(counted, (8 + 8) * row);
    ctx.record = false;
  });
}

TEST(AvgPool, DividesByWhatCounts) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const float kX[] = {1, 2, 3, 4, 5};
    const DistTensor x =
        DistTensor::from_global(Tensor::from(Shape{1, 5}, kX), mesh, "S1");
    const auto pooled = [&](const PoolOptions& o) {
      return doubles(avg_pool1d(x, {2}, o));
    };
    EXPECT_EQ(pooled({}), (std::vector<double>{1.5, 3.5}));
    EXPECT_EQ(pooled({.ceil_mode = true}), (std::vector<double>{1.5, 3.5, 5}));
    EXPECT_EQ(pooled({.padding = {1}}), (std::vector<double>{0.5, 2.5, 4.5}));
    EXPECT_EQ(pooled({.padding = {1}, .count_include_pad = false}),
              (std::vector<double>{1, 2.5, 4.5}));
    EXPECT_EQ(pooled({.divisor_override = 4}),
              (std::vector<double>{0.75, 1.75}));
  });
}

// The second window would begin behind the padding, where torch has none.
TEST(Pools, NoWindowBeginsBehindThePadding) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const float kX[] = {1, 2, 3, 4};
    const DistTensor x =
        DistTensor::from_global(Tensor::from(Shape{1, 4}, kX), mesh, "S1");
    const PoolOptions o{.stride = {5}, .padding = {1}, .ceil_mode = true};
    EXPECT_EQ(doubles(max_pool1d(x, {2}, o)), (std::vector<double>{1}));
    EXPECT_EQ(doubles(avg_pool1d(x, {2}, o)), (std::vector<double>{0.5}));
  });
}

// The mean of a whole dimension takes sums from the other ranks.
TEST(AdaptivePools, MeansOfWholeDimensionsGatherNothing) {
  const Mesh mesh = Mesh::parse("a=4");
  run(4, [&](Runtime& rt) {
    const DistTensor x =
        randn({2, 3, 16, 500}, mesh, "S2", DType::kF64, {1, 1});
    RankContext& ctx = rt.context();
    ctx.record = true;
    adaptive_avg_pool2d(x, {1}).full();
    int64_t counted = 0;
    for (const CommEvent& e : ctx.events) counted += e.counted;
    EXPECT_LE(counted, 3 * 2 * 3 * 8);
    ctx.record = false;
  });
}

// Windows [0, 2), [1, 4) and [3, 5) of five elements.
TEST(AdaptivePools, WindowsOfDifferentSizes) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const double kX[] = {1, 2, 4, 6, 2};
    for (const char* layout : {"R", "S1", "S2"}) {
      const DistTensor x = DistTensor::from_global(
                               Tensor::from(Shape{1, 1, 5}, kX), mesh, layout)
                               .set_requires_grad();
      EXPECT_EQ(doubles(adaptive_avg_pool1d(x, {3})),
                (std::vector<double>{1.5, 4, 4}))
          << layout;
      EXPECT_EQ(doubles(adaptive_max_pool1d(x, {3})),
                (std::vector<double>{2, 6, 6}))
          << layout;
      const auto [y, at] = adaptive_max_pool1d_with_indices(x, {3});
      EXPECT_EQ(doubles(at), (std::vector<double>{1, 3, 3})) << layout;
      EXPECT_EQ(doubles(grad(sum(y), {x})[0]),
                (std::vector<double>{0, 1, 0, 2, 0}))
          << layout;
      // The same in the last of three dimensions of space.
      const DistTensor box = reshape(x, {1, 1, 1, 1, 5});
      EXPECT_EQ(doubles(adaptive_avg_pool3d(box, {1, -1, 3})),
                (std::vector<double>{1.5, 4, 4}))
          << layout;
      EXPECT_EQ(doubles(adaptive_max_pool3d(box, {1, -1, 3})),
                (std::vector<double>{2, 6, 6}))
          << layout;
      EXPECT_EQ(
          doubles(adaptive_max_pool3d_with_indices(box, {1, -1, 3}).second),
          (std::vector<double>{1, 3, 3}))
          << layout;
    }
  });
}

// An infinity outside of a window has no part in its mean: rows 0 and 1, 1 to
// 3, and 3 and 4.
TEST(AdaptivePools, OfInfinity) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    const double kX[] = {1, 1, 3, 3, kInf, kInf, 5, 5, 7, 7};
    for (const char* layout : {"R", "S2"})
      EXPECT_EQ(doubles(adaptive_avg_pool2d(
                    DistTensor::from_global(Tensor::from(Shape{1, 1, 5, 2}, kX),
                                            mesh, layout),
                    {3, -1})),
                (std::vector<double>{2, 2, kInf, kInf, 6, 6}))
          << layout;
  });
}

TEST(Pools, RefuseInASentence) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const auto of = [&](Shape s) { return zeros(s, mesh, {}, DType::kF32); };
    EXPECT_EQ(error_of([&] {
                max_pool2d(of({4, 6}), {2});
              }),
              "[max_pool2d] x has shape [4, 6]; pass one of 4 dimensions: the "
              "batch, which may be missing, the channels, and 2 of space");
    EXPECT_EQ(error_of([&] {
                avg_pool1d(of({1, 4}), {2, 2});
              }),
              "[avg_pool1d] the window has 2 numbers; write one, or one for "
              "each of the 1 dimensions of space");
    EXPECT_EQ(error_of([&] {
                max_pool1d(of({1, 4}), {0});
              }),
              "[max_pool1d] the window is 0 in dimension 0 of space; write a "
              "number from 1 to 2147483647");
    EXPECT_EQ(error_of([&] {
                avg_pool2d(of({2, 0, 4, 4}), {2});
              }),
              "[avg_pool2d] x has shape [2, 0, 4, 4]; pass at least one "
              "channel");
    // Options of the other kind of pool.
    EXPECT_EQ(error_of([&] {
                avg_pool1d(of({1, 9}), {2}, {.dilation = {2}});
              }),
              "[avg_pool1d] dilation is 2 in dimension 0 of space; leave it "
              "out, since the windows of avg_pool have no gaps");
    EXPECT_EQ(error_of([&] {
                max_pool1d(of({1, 9}), {2}, {.count_include_pad = false});
              }),
              "[max_pool1d] count_include_pad is false and divisor_override 0, "
              "but a maximum is not divided; leave both out");
    EXPECT_EQ(error_of([&] {
                max_pool1d(of({1, 4}), {3}, {.padding = {2}});
              }),
              "[max_pool1d] padding is 2 in dimension 0 of space, but the "
              "window 3; write at most half of it");
    EXPECT_EQ(error_of([&] {
                avg_pool1d(of({1, 4}), {5});
              }),
              "[avg_pool1d] x has 4 elements in dimension 0 of space, with "
              "padding, but a window spans 5; pad more, or take a smaller "
              "window");
    EXPECT_EQ(error_of([&] {
                max_pool1d(zeros({1, 4}, mesh, {}, DType::kBool), {2});
              }),
              "[max_pool] takes floats, i32 or i64, but got bool; cast x to "
              "one of them");
    EXPECT_EQ(error_of([&] {
                adaptive_avg_pool1d(of({1, 4}), {0});
              }),
              "[adaptive_avg_pool1d] the size is 0 in dimension 0 of space; "
              "write at least 1, or -1 to keep the size of x");
    EXPECT_EQ(error_of([&] {
                adaptive_max_pool1d(zeros({1, 4}, mesh, {}, DType::kI64), {2});
              }),
              "[adaptive_max_pool1d] takes f32, f64, bf16 or f16, but got i64; "
              "write cast(x, DType::kF32)");
    EXPECT_EQ(error_of([&] {
                adaptive_max_pool1d(of({1, 0}), {2});
              }),
              "[adaptive_max_pool1d] x has shape [1, 1, 0]; pass one with "
              "elements in each dimension of space");
    EXPECT_EQ(error_of([&] {
                avg_pool1d(of({1, 0}), {2}, {.padding = {1}});
              }),
              "[avg_pool1d] x has shape [1, 1, 0]; pass one with elements in "
              "each dimension of space");
  });
}

}  // namespace
}  // namespace dtensor
