// SPDX-License-Identifier: Apache-2.0
// Convolutions in f32, as oneDNN makes them, against a loop over all products;
// the proof and torch's cases use f64.
#include "dtensor/ops/convolution.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/view.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/array.h"
#include "tests/ops/structured_testing.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::Array;
using testing::array_of;
using testing::error_of;
using testing::put;
using testing::zeros_like;

std::vector<double> doubles(const DistTensor& x) {
  return x.full().to_doubles();
}

// A convolution over two dimensions of space.
struct Conv {
  Shape x, weight;
  std::array<int64_t, 2> stride{1, 1}, pad{0, 0}, dilation{1, 1};
  int64_t groups = 1;

  Shape out() const {
    Shape s{x[0], weight[0]};
    for (int d = 0; d < 2; ++d) {
      const auto i = static_cast<size_t>(d);
      s.push_back(
          (x[d + 2] + 2 * pad[i] - dilation[i] * (weight[d + 2] - 1) - 1) /
              stride[i] +
          1);
    }
    return s;
  }
  ConvOptions options() const {
    return {.stride = {stride[0], stride[1]},
            .padding = {pad[0], pad[1]},
            .dilation = {dilation[0], dilation[1]},
            .groups = groups};
  }
  // Calls f(x, weight, y) with the positions of the elements of each product.
  template <class F>
  void for_products(const F& f) const {
    const Shape y = out();
    const int64_t c = weight[1], o = weight[0] / groups;
    for (int64_t b = 0; b < y[0]; ++b)
      for (int64_t to = 0; to < y[1]; ++to)
        for (int64_t from = 0; from < c; ++from)
          for (int64_t m = 0; m < y[2]; ++m)
            for (int64_t n = 0; n < y[3]; ++n)
              for (int64_t k = 0; k < weight[2]; ++k)
                for (int64_t l = 0; l < weight[3]; ++l) {
                  const int64_t i = m * stride[0] + k * dilation[0] - pad[0],
                                j = n * stride[1] + l * dilation[1] - pad[1];
                  if (i < 0 || i >= x[2] || j < 0 || j >= x[3]) continue;
                  const int64_t channel = to / o * c + from;
                  f(((b * x[1] + channel) * x[2] + i) * x[3] + j,
                    ((to * c + from) * weight[2] + k) * weight[3] + l,
                    ((b * y[1] + to) * y[2] + m) * y[3] + n);
                }
  }
};

const Conv kConvs[] = {
    {.x = {3, 4, 7, 9}, .weight = {5, 4, 3, 3}, .pad = {1, 1}},
    {.x = {2, 3, 11, 8},
     .weight = {4, 3, 5, 2},
     .stride = {2, 3},
     .pad = {2, 1}},
    {.x = {2, 6, 9, 10},
     .weight = {4, 3, 3, 2},
     .pad = {2, 0},
     .dilation = {2, 3},
     .groups = 2},
    {.x = {2, 5, 8, 6},
     .weight = {5, 1, 3, 3},
     .stride = {2, 1},
     .pad = {1, 1},
     .groups = 5},
    // Windows that skip elements.
    {.x = {1, 2, 13, 5}, .weight = {3, 2, 1, 1}, .stride = {3, 2}},
    // Windows larger than a rank's part.
    {.x = {1, 2, 5, 4}, .weight = {2, 2, 5, 4}, .pad = {4, 3}}};

// The layouts of x, and of the cotangent.
const char* const kLayouts[] = {"R,R",   "S0,R",  "R,S1",  "S2,R",  "S2,S3",
                                "S3,S2", "S1,S2", "S2,S2", "S0,S3", "P,S2"};

TEST(Conv2d, AsALoopInEveryLayout) {
  const Mesh mesh = Mesh::parse("a=2,b=3");
  run(6, [&](Runtime&) {
    for (const Conv& c : kConvs) {
      const Array x = testing::values(c.x, 1), w = testing::values(c.weight, 2),
                  bias = testing::values({c.weight[0]}, 3),
                  dy = testing::values(c.out(), 4);
      Array y = zeros_like(c.out()), dx = zeros_like(c.x),
            dw = zeros_like(c.weight), db = zeros_like(bias.shape);
      const int64_t area = c.out()[2] * c.out()[3];
      for (int64_t m = 0; m < numel(y.shape); ++m) {
        y.at(m) = bias.at(m / area % c.weight[0]);
        db.at(m / area % c.weight[0]) += dy.at(m);
      }
      c.for_products([&](int64_t i, int64_t k, int64_t m) {
        y.at(m) += x.at(i) * w.at(k);
        dx.at(i) += dy.at(m) * w.at(k);
        dw.at(k) += dy.at(m) * x.at(i);
      });
      for (const std::string layout : kLayouts)
        for (const DType t : {DType::kF32, DType::kF64}) {
          SCOPED_TRACE(to_string(c.x) + " " + layout + " " +
                       std::string(name(t)));
          const double tolerance = t == DType::kF32 ? 2e-5 : 1e-12;
          const DistTensor in = put(x, mesh, layout, t).set_requires_grad();
          const DistTensor weight = put(w, mesh, "", t).set_requires_grad();
          const DistTensor b = put(bias, mesh, "", t).set_requires_grad();
          const DistTensor got = conv2d(in, weight, b, c.options());
          testing::expect_near(array_of(got.full()), y, tolerance, "y");
          GradOptions o;
          o.cotangent = put(dy, mesh, layout[0] == 'P' ? "" : layout, t);
          const auto g = grad(got, {in, weight, b}, o);
          testing::expect_near(array_of(g[0].full()), dx, tolerance, "dx");
          testing::expect_near(array_of(g[1].full()), dw, 4 * tolerance, "dw");
          testing::expect_near(array_of(g[2].full()), db, tolerance, "db");
          // The transposed convolution is the gradient of x.
          if (layout[0] == 'P') continue;
          ConvOptions up = c.options();
          up.output_padding = {
              c.x[2] - ((c.out()[2] - 1) * c.stride[0] - 2 * c.pad[0] +
                        c.dilation[0] * (c.weight[2] - 1) + 1),
              c.x[3] - ((c.out()[3] - 1) * c.stride[1] - 2 * c.pad[1] +
                        c.dilation[1] * (c.weight[3] - 1) + 1)};
          testing::expect_near(
              array_of(
                  conv_transpose2d(put(dy, mesh, layout, t), weight, {}, up)
                      .full()),
              dx, tolerance, "transposed");
        }
    }
  });
}

// With a kernel of 3, each of 4 ranks fetches one row of each neighbour, in the
// forward pass and in the backward pass: of x for y and for the gradient of the
// weight, and of dy for the gradient of x.
TEST(Conv2d, SendsOnlyTheHalo) {
  const Mesh mesh = Mesh::parse("a=4");
  run(4, [&](Runtime& rt) {
    const DistTensor x = randn({2, 3, 16, 500}, mesh, "S2", DType::kF32, {1, 1})
                             .set_requires_grad();
    const DistTensor w =
        randn({4, 3, 3, 3}, mesh, {}, DType::kF32, {1, 2}).set_requires_grad();
    RankContext& ctx = rt.context();
    ctx.record = true;
    const DistTensor y = conv2d(x, w, {}, {.padding = 1});
    EXPECT_EQ(y.layout().to_string(mesh), "S2");
    const int64_t row = 2 * 500 * 4;  // bytes of a channel's row
    const int64_t neighbours = rt.rank() == 0 || rt.rank() == 3 ? 1 : 2;
    ASSERT_EQ(ctx.events.size(), 1u);
    EXPECT_EQ(ctx.events[0].predicted, 2 * 3 * row);
    EXPECT_EQ(ctx.events[0].counted, neighbours * 3 * row);
    ctx.events.clear();
    grad(sum(y * y), {x});
    int64_t counted = 0;
    for (const CommEvent& e : ctx.events)
      if (e.kind == StepKind::kAllToAll) counted += e.counted;
    EXPECT_EQ(counted, neighbours * 4 * row);
    ctx.record = false;
  });
}

// Planes one behind the other, which the third dimension does not mix.
TEST(Conv3d, OfPlanesIsConv2dOfEach) {
  const Mesh mesh = Mesh::parse("a=2,b=3");
  run(6, [&](Runtime&) {
    const ConvOptions flat{.stride = {2}, .padding = 1};
    const ConvOptions deep{.stride = {1, 2, 2}, .padding = {0, 1, 1}};
    const DistTensor w = put(testing::values({4, 3, 3, 2}, 2), mesh);
    for (const bool transposed : {false, true}) {
      const Array x = testing::values({2, transposed ? 4 : 3, 5, 7, 6}, 1);
      const DistTensor space = put(x, mesh, "S2,S3");
      const DistTensor deep_w = unsqueeze(w, 2);
      const DistTensor got = transposed
                                 ? conv_transpose3d(space, deep_w, {}, deep)
                                 : conv3d(space, deep_w, {}, deep);
      for (int64_t d = 0; d < 5; ++d) {
        const DistTensor plane = select(space, 2, d);
        const DistTensor want = transposed
                                    ? conv_transpose2d(plane, w, {}, flat)
                                    : conv2d(plane, w, {}, flat);
        testing::expect_near(array_of(select(got, 2, d).full()),
                             array_of(want.full()), 1e-12,
                             transposed ? "transposed" : "forward");
      }
    }
  });
}

TEST(Conv1d, WithoutABatchAndSame) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const double kX[] = {1, 2, 3, 4, 5}, kW[] = {1, 10, 100, 1000};
    const DistTensor x =
        DistTensor::from_global(Tensor::from(Shape{1, 5}, kX), mesh, "S1");
    const DistTensor w =
        DistTensor::from_global(Tensor::from(Shape{1, 1, 4}, kW), mesh, {});
    EXPECT_EQ(doubles(conv1d(x, w)), (std::vector<double>{4321, 5432}));
    // One zero in front, and two behind.
    EXPECT_EQ(doubles(conv1d(x, w, {}, {.padding = "same"})),
              (std::vector<double>{3210, 4321, 5432, 543, 54}));
    EXPECT_EQ(doubles(conv1d(x, w, {}, {.padding = "valid"})),
              (std::vector<double>{4321, 5432}));
  });
}

TEST(Conv, RefusesInASentence) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const auto of = [&](Shape s) { return zeros(s, mesh, {}, DType::kF32); };
    const DistTensor x = of({2, 4, 6, 6}), w = of({3, 4, 3, 3});
    EXPECT_EQ(error_of([&] {
                conv2d(of({4, 6}), w);
              }),
              "[conv2d] x has shape [4, 6]; pass one of 4 dimensions: the "
              "batch, which may be missing, the channels, and 2 of space");
    EXPECT_EQ(error_of([&] {
                conv2d(x, of({3, 2, 3, 3}));
              }),
              "[conv2d] x has shape [2, 4, 6, 6], with 4 channels, but a "
              "weight of shape [3, 2, 3, 3] with 1 group is for 2 channels");
    EXPECT_EQ(error_of([&] { conv2d(x, w, {}, {.groups = 2}); }),
              "[conv2d] groups is 2, and the weight's shape [3, 4, 3, 3]; "
              "write a number of groups from 1 that divides 3, the weight's "
              "first size");
    EXPECT_EQ(error_of([&] { conv2d(x, w, of({4})); }),
              "[conv2d] the bias has shape [4]; pass one of shape [3], for the "
              "channels of the result");
    EXPECT_EQ(error_of([&] {
                conv2d(x, w, {}, {.stride = {1, 2, 3}});
              }),
              "[conv2d] stride has 3 numbers; write one, or one for each of "
              "the 2 dimensions of space");
    EXPECT_EQ(error_of([&] { conv2d(x, w, {}, {.stride = {0}}); }),
              "[conv2d] stride is 0 in dimension 0 of space; write a number "
              "from 1 to 2147483647");
    EXPECT_EQ(
        error_of([&] { conv2d(x, w, {}, {.dilation = {int64_t{1} << 31}}); }),
        "[conv2d] dilation is 2147483648 in dimension 0 of space; write "
        "a number from 1 to 2147483647");
    EXPECT_EQ(error_of([&] {
                conv2d(x, w, {}, {.output_padding = {0, 1}});
              }),
              "[conv2d] output_padding is 1 in dimension 1 of space, but only "
              "transposed convolutions have one; leave it out");
    EXPECT_NE(error_of([&] { conv2d(x, {}); }).find("is an undefined tensor"),
              std::string::npos);
    EXPECT_EQ(error_of([&] { conv2d(x, w, {}, {.dilation = {3}}); }),
              "[conv2d] x has 6 elements in dimension 0 of space, with "
              "padding, but a window of the weight spans 7; pad more, or take "
              "a smaller weight");
    EXPECT_EQ(
        error_of([&] { conv2d(x, w, {}, {.stride = {2}, .padding = "same"}); }),
        "[conv2d] padding is \"same\" and the stride 2 in dimension 0 of "
        "space; write a stride of 1, or the padding as a number");
    EXPECT_EQ(
        error_of([&] { Padding("full"); }),
        "[conv] padding is \"full\"; write \"same\", \"valid\", a number, "
        "or one for each dimension of space");
    EXPECT_EQ(
        error_of([&] {
          conv_transpose2d(x, of({4, 3, 3, 3}), {}, {.output_padding = {1}});
        }),
        "[conv_transpose2d] output_padding is 1 in dimension 0 of space; "
        "write less than the stride, 1, or than the dilation, 1");
    EXPECT_EQ(error_of([&] {
                conv2d(x, zeros({3, 4, 3, 3}, mesh, {}, DType::kF64));
              }),
              "[convolution] input 0 is f32 and input 1 is f64; cast both to "
              "one type of float, i32 or i64");
  });
}

}  // namespace
}  // namespace dtensor
