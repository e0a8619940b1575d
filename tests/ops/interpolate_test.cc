// SPDX-License-Identifier: Apache-2.0
// Interpolation and sampling in forms of which torch has no cases; bytes and
// errors.
#include "dtensor/ops/interpolate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
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

void expect_near(const std::vector<double>& got,
                 const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 1e-12) << i;
}

// To half of the size, Pillow's filters are twice as wide as they are high: the
// linear one has the weights 1/8, 3/8, 3/8 and 1/8, whose sum is 7/8 at an end.
TEST(Interpolate, AntialiasCoversAllElements) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const auto half = [&](std::vector<double> x, Interpolation mode) {
      return doubles(interpolate(
          DistTensor::from_global(Tensor::from({1, 1, std::ssize(x)}, x.data()),
                                  mesh, "S2"),
          {.size = {std::ssize(x) / 2}, .mode = mode, .antialias = true}));
    };
    expect_near(half({8, 0, 0, 0, 0, 16, 0, 0}, Interpolation::kLinear),
                {24 / 7.0, 0, 6, 16 / 7.0});
    std::vector<double> x(24, 0);
    x[8] = 32;
    expect_near(half(x, Interpolation::kCubic),
                {0, 0, -0.375, 3.625, 13.875, -1.125, 0, 0, 0, 0, 0, 0});
  });
}

// Linear interpolation to twice the size needs one row of each neighbour.
TEST(Interpolate, SendsOnlyTheHalo) {
  const Mesh mesh = Mesh::parse("a=4");
  run(4, [&](Runtime& rt) {
    const DistTensor x =
        zeros({2, 3, 16, 50}, mesh, "S2", DType::kF32).set_requires_grad();
    RankContext& ctx = RankContext::current();
    ctx.record = true;
    ctx.events.clear();
    const DistTensor y =
        interpolate(x, {.scale_factor = {2}, .mode = Interpolation::kLinear});
    ctx.record = false;
    EXPECT_EQ(y.layout().to_string(mesh), "S2");
    const int64_t neighbours = rt.rank() == 0 || rt.rank() == 3 ? 1 : 2;
    ASSERT_EQ(ctx.events.size(), 1u);
    EXPECT_EQ(ctx.events[0].counted, 4 * 2 * 3 * 50 * neighbours);
  });
}

TEST(Interpolate, RefusesInASentence) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const auto of = [&](Shape s) { return zeros(s, mesh, {}, DType::kF32); };
    EXPECT_EQ(error_of([&] {
                interpolate(of({4, 6}), {.size = {2}});
              }),
              "[interpolate] x has shape [4, 6]; pass one of 3 to 5 "
              "dimensions: the batch, the channels, and 1 to 3 of space");
    EXPECT_EQ(error_of([&] {
                interpolate(of({1, 1, 6}), {});
              }),
              "[interpolate] size has 0 numbers and scale_factor 0; write one "
              "of the two");
    EXPECT_EQ(
        error_of([&] {
          interpolate(of({1, 1, 6}), {.size = {2}, .align_corners = true});
        }),
        "[interpolate] align_corners is true and antialias false, but "
        "only kLinear and kCubic have them; leave them out");
    EXPECT_EQ(
        error_of([&] {
          interpolate(zeros({1, 1, 6}, mesh, {}, DType::kI64), {.size = {2}});
        }),
        "[interpolate] takes f32, f64, bf16 or f16, but got i64; write "
        "cast(x, DType::kF32)");
    EXPECT_EQ(error_of([&] {
                interpolate(of({1, 1, 6}), {.size = {2, 3}});
              }),
              "[interpolate] size has 2 numbers; write one, or one for each of "
              "the 1 dimensions of space");
    EXPECT_EQ(error_of([&] {
                interpolate(of({1, 1, 6}), {.scale_factor = {0.1}});
              }),
              "[interpolate] 6 elements would become 0 in dimension 0 of "
              "space; both numbers must be from 1 to 2147483647");
  });
}

}  // namespace
}  // namespace dtensor
