// SPDX-License-Identifier: Apache-2.0
// Interpolation and sampling in forms of which torch has no cases; bytes and
// errors.
#include "dtensor/ops/interpolate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "dtensor/graph.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/dtensor/device/recording_device.h"
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

// torch 2.15's values, for a ratio that is not whole.
TEST(Interpolate, AntialiasOfAnUnevenRatio) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const double kX[] = {8, 0, 0, 0, 16, 0, 4, 0, 2};
    expect_near(
        doubles(interpolate(
            DistTensor::from_global(Tensor::from(Shape{1, 1, 9}, kX), mesh,
                                    "S2"),
            {.size = {4}, .mode = Interpolation::kLinear, .antialias = true})),
        {2.971428571428571, 3.5121951219512195, 4.585365853658537,
         1.5428571428571427});
  });
}

// Element 49 is at position 49 * (2 / 98), which in f64 is below 1. torch reads
// element 1.
TEST(Interpolate, NearestIsRoundedAsInF32) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const double kX[] = {0, 1};
    const std::vector<double> y = doubles(interpolate(
        DistTensor::from_global(Tensor::from(Shape{1, 1, 2}, kX), mesh, "R"),
        {.size = {98}}));
    for (size_t i = 0; i < 98; ++i) EXPECT_EQ(y[i], i >= 49) << i;
  });
}

// A captured step may not copy the weights from the host.
TEST(Interpolate, InAGraph) {
  const auto device = RecordingDevice::make();
  RunOptions options;
  options.world = 2;
  options.device = [&](int64_t) -> Device& { return *device; };
  run(options, [](Runtime& rt) {
    DistTensor x = randn({1, 2, 6}, rt.mesh(), "S2", DType::kF64, {1, 2});
    x.set_requires_grad();
    DistTensor y, dx;
    const auto step = [&] {
      y = interpolate(x, {.size = {9}, .mode = Interpolation::kLinear});
      dx = grad(sum(y), {x})[0];
    };
    step();
    const auto want_y = doubles(y), want_dx = doubles(dx);
    Graph graph(step);
    graph.replay();
    EXPECT_EQ(doubles(y), want_y);
    EXPECT_EQ(doubles(dx), want_dx);
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

// Samples one image of one channel as torch's CPU kernels do.
struct Image {
  int64_t h, w;
  std::vector<double> x;
  GridSampleOptions o;

  double element(double i, double j) const {
    if (i < 0 || i >= static_cast<double>(h)) return 0;
    if (j < 0 || j >= static_cast<double>(w)) return 0;
    return x[static_cast<size_t>(i) * static_cast<size_t>(w) +
             static_cast<size_t>(j)];
  }
  double padded(double p, int64_t size) const {
    const auto n = static_cast<double>(size);
    if (o.padding == GridPadding::kReflection) {
      const double lo = o.align_corners ? 0 : -0.5, hi = n - 1 - lo;
      while (p < lo || p > hi) p = p < lo ? 2 * lo - p : 2 * hi - p;
    }
    if (o.padding == GridPadding::kZeros) return p;
    return std::min(std::max(p, 0.0), n - 1);
  }
  double sample(double gy, double gx) const {
    const auto position = [&](double g, int64_t size) {
      const auto n = static_cast<double>(size);
      return o.align_corners ? (g + 1) / 2 * (n - 1) : ((g + 1) * n - 1) / 2;
    };
    double i = position(gy, h), j = position(gx, w);
    if (o.mode != Interpolation::kCubic) i = padded(i, h), j = padded(j, w);
    if (o.mode == Interpolation::kNearest)
      return element(std::nearbyint(i), std::nearbyint(j));
    double sum = 0;
    const double i0 = std::floor(i), j0 = std::floor(j);
    if (o.mode == Interpolation::kLinear) {
      for (int a = 0; a < 2; ++a)
        for (int b = 0; b < 2; ++b)
          sum += element(i0 + a, j0 + b) * std::abs(1 - a - (i - i0)) *
                 std::abs(1 - b - (j - j0));
      return sum;
    }
    const auto cubic = [](double d) {
      d = std::abs(d);
      return d <= 1 ? (1.25 * d - 2.25) * d * d + 1
                    : ((-0.75 * d + 3.75) * d - 6) * d + 3;
    };
    for (int a = -1; a < 3; ++a)
      for (int b = -1; b < 3; ++b)
        sum += element(padded(i0 + a, h), padded(j0 + b, w)) *
               cubic(i - i0 - a) * cubic(j - j0 - b);
    return sum;
  }
};

TEST(GridSample, EveryModeAgainstLoops) {
  const Mesh mesh = Mesh::parse("a=3");
  run(3, [&](Runtime&) {
    Image image{3, 4, {1, 2, -1, 4, 0, 3, 5, -2, 7, 1, 2, 6}, {}};
    std::vector<double> points;
    for (double gy : {-3.1, -1.0, -0.9, -0.1, 0.35, 1.0, 1.2, 4.7})
      for (double gx : {-2.6, -1.0, -0.55, 0.0, 0.4, 0.99, 1.0, 1.3})
        points.insert(points.end(), {gx, gy});
    for (const auto mode : {Interpolation::kNearest, Interpolation::kLinear,
                            Interpolation::kCubic})
      for (const auto padding : {GridPadding::kZeros, GridPadding::kBorder,
                                 GridPadding::kReflection})
        for (const bool corners : {false, true}) {
          image.o = {mode, padding, corners};
          std::vector<double> want;
          for (size_t i = 0; i < points.size(); i += 2)
            want.push_back(image.sample(points[i + 1], points[i]));
          for (const char* layout : {"R", "S2"}) {
            SCOPED_TRACE(::testing::Message()
                         << static_cast<int>(mode) << " "
                         << static_cast<int>(padding) << corners << layout);
            const DistTensor x = DistTensor::from_global(
                Tensor::from({1, 1, 3, 4}, image.x.data()), mesh, layout);
            const DistTensor grid = DistTensor::from_global(
                Tensor::from({1, 8, 8, 2}, points.data()), mesh, "R");
            expect_near(doubles(grid_sample(x, grid, image.o)), want);
          }
        }
  });
}

// Beyond the border the value is constant, so the slope is 0; as in torch, it
// is also 0 at the first and the last element. A position that is NaN gives 0.
TEST(GridSample, SlopesAndNaN) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const double kX[] = {1, 3, 7};
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double kGrid[] = {-2, 0, 0.25, 0, 1.5, 0, -1, 0, 1, 0, nan, 0};
    const DistTensor x =
        DistTensor::from_global(Tensor::from(Shape{1, 1, 1, 3}, kX), mesh, "R");
    const DistTensor grid =
        DistTensor::from_global(Tensor::from(Shape{1, 1, 6, 2}, kGrid), mesh,
                                "S2")
            .set_requires_grad();
    const DistTensor y = grid_sample(
        x, grid, {.padding = GridPadding::kBorder, .align_corners = true});
    expect_near(doubles(y), {1, 4, 7, 1, 7, 0});
    const std::vector<double> slope = doubles(grad(sum(y), {grid})[0]);
    expect_near({slope[0], slope[2], slope[4], slope[6], slope[8]},
                {0, 4, 0, 0, 0});
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
    EXPECT_EQ(error_of([&] {
                grid_sample(of({1, 1, 6, 6}), of({2, 3, 3, 2}));
              }),
              "[grid_sample] the grid has shape [2, 3, 3, 2] and x [1, 1, 6, "
              "6]; pass a grid of 4 dimensions: the batch, which is 1, 2 of "
              "points, and 2 coordinates");
  });
}

// A point outside of x has the value 0, even if x has infinities.
TEST(GridSample, OutsideOfInfinity) {
  const Mesh mesh = Mesh::parse("x=2");
  run(2, [&](Runtime&) {
    const DistTensor x =
        full({1, 1, 2, 3}, std::numeric_limits<double>::infinity(), mesh, {},
             DType::kF64);
    const DistTensor y =
        grid_sample(x, full({1, 1, 1, 2}, 5, mesh, {}, DType::kF64));
    EXPECT_EQ(y.item(), 0);
  });
}

}  // namespace
}  // namespace dtensor
