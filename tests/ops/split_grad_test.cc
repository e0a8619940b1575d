// SPDX-License-Identifier: Apache-2.0
// SplitGrad: now() returns some gradients, later() the others.
#include "dtensor/ops/split_grad.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/norm.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/runtime.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;

constexpr DType kF64 = DType::kF64;

struct Layer {
  DistTensor x, w1, b1, w2, gain, unused;

  explicit Layer(const Mesh& m) {
    const auto leaf = [&](uint64_t stream, Shape s, const char* layout) {
      return randn(s, m, layout, kF64, {3, stream}).set_requires_grad();
    };
    x = leaf(0, {5, 3}, "S0,R");
    w1 = leaf(1, {7, 3}, "R,S0");
    b1 = leaf(2, {7}, "R,S0");
    w2 = leaf(3, {3, 7}, "R,S1");
    gain = leaf(4, {3}, "R,R");
    unused = leaf(5, {2}, "R,R");
  }
  std::vector<DistTensor> weights() const { return {w1, b1, w2, gain, unused}; }
  // w2 is used twice; `unused` is not used.
  DistTensor operator()() const {
    const DistTensor h = gelu(linear(rms_norm(x, gain, 1e-5), w1, b1));
    return sum(x + linear(h, w2) * linear(h, w2));
  }
};

void expect_near(const DistTensor& a, const DistTensor& b) {
  ASSERT_EQ(a.spec(), b.spec());
  const Tensor fa = a.full(), fb = b.full();
  for (int64_t i = 0; i < fa.numel(); ++i)
    EXPECT_NEAR(fa.at(i), fb.at(i), 1e-12 * (1 + std::abs(fb.at(i))));
}

TEST(SplitGrad, IsTheGradient) {
  const Mesh m = Mesh::parse("dp=2,tp=2");
  run(4, [&](Runtime&) {
    const Layer layer(m);
    std::vector<DistTensor> all = layer.weights();
    all.insert(all.begin(), layer.x);
    const auto whole = grad(layer(), all);
    SplitGrad split(layer(), {}, {layer.x}, layer.weights());
    ASSERT_EQ(split.now().size(), 1u);
    expect_near(split.now()[0], whole[0]);
    const auto rest = settle(layer.weights(), split.later());
    ASSERT_EQ(rest.size(), 5u);
    for (size_t i = 0; i < rest.size(); ++i) expect_near(rest[i], whole[i + 1]);
    // The gradients are not recorded, even if they are added to leaves.
    SplitGrad again(layer(), {}, {layer.x}, layer.weights());
    for (const DistTensor& g : again.later({.add_arrived = layer.weights()}))
      EXPECT_FALSE(g.requires_grad());
  });
}

TEST(SplitGrad, AddsMicroBatchesBeforeItSendsThem) {
  const Mesh m = Mesh::parse("dp=2,tp=2");
  run(4, [&](Runtime& rt) {
    const Layer layer(m);
    const DistTensor half = full({}, 0.5, m, {}, kF64);
    const auto whole = grad(layer(), layer.weights());
    SplitGrad first(layer(), half, {layer.x}, layer.weights());
    SplitGrad second(layer(), half, {layer.x}, layer.weights());
    auto sum = second.later({.keep_partial = true, .add_to = first.later()});
    // The batch is split over dp, so a weight's gradient is a partial sum over
    // dp.
    EXPECT_EQ(sum[0].layout().partials.size(), 1u);
    rt.context().record = true;
    const auto settled = settle(layer.weights(), sum);
    EXPECT_FALSE(rt.context().events.empty());
    for (size_t i = 0; i < settled.size(); ++i)
      expect_near(settled[i], whole[i]);
    const auto narrow = settle(layer.weights(), std::move(sum), DType::kF32);
    EXPECT_EQ(narrow[0].dtype(), kF64);
    EXPECT_NEAR(narrow[0].full().at(0), whole[0].full().at(0), 1e-5);
  });
}

// later() sends its gradients in buckets.
TEST(SplitGrad, SendsBucketsMeanwhile) {
  const Mesh m = Mesh::parse("dp=2,tp=2");
  run(4, [&](Runtime& rt) {
    const Layer layer(m);
    const auto whole = grad(layer(), layer.weights());
    std::vector<int64_t> collectives;
    for (const int64_t bytes : {1, 1 << 20}) {
      SplitGrad split(layer(), {}, {layer.x}, layer.weights());
      rt.context().record = true;
      rt.context().events.clear();
      const int64_t before = rt.context().collectives;
      const auto rest = split.later({.bucket_bytes = bytes});
      rt.context().record = false;
      collectives.push_back(rt.context().collectives - before);
      for (size_t i = 0; i < rest.size(); ++i) expect_near(rest[i], whole[i]);
    }
    EXPECT_GT(collectives[0], collectives[1]);
  });
}

// Two outputs with cotangents 1 and 2 are like their weighted sum.
TEST(SplitGrad, OfSeveralOutputs) {
  const Mesh m = Mesh::parse("dp=2,tp=2");
  run(4, [&](Runtime&) {
    const Layer layer(m);
    const auto h = [&] { return gelu(linear(layer.x, layer.w1, layer.b1)); };
    const DistTensor one = ones({}, m, {}, kF64), two = one * 2.0;
    const DistTensor a = h(), b = h();
    const auto whole =
        grad(sum(a) + sum(a * a) * 2.0, {layer.x, layer.w1, layer.b1});
    SplitGrad split(std::vector{sum(b), sum(b * b)}, std::vector{one, two},
                    {layer.x}, {layer.w1, layer.b1});
    expect_near(split.now()[0], whole[0]);
    const auto rest = settle({layer.w1, layer.b1}, split.later());
    for (size_t i = 0; i < 2; ++i) expect_near(rest[i], whole[i + 1]);
  });
}

// Counts products: the first part has those with weights, the second those with
// values that the forward pass saved.
TEST(SplitGrad, WhatOnlyWeightsNeedComesLater) {
  run(1, [&](Runtime& rt) {
    const Layer layer(Mesh::parse("dp=1,tp=1"));
    std::vector<std::string> ops;
    const OnOp observe(rt.context(),
                       [&](const OpRan& op) { ops.emplace_back(op.op); });
    const auto products = [&] {
      const auto n = std::count_if(ops.begin(), ops.end(), [](const auto& op) {
        return op.find("einsum") != op.npos || op.find("matmul") != op.npos ||
               op.find("linear") != op.npos;
      });
      ops.clear();
      return n;
    };
    const DistTensor y = layer();
    EXPECT_EQ(products(), 3);
    SplitGrad split(y, {}, {layer.x}, layer.weights());
    EXPECT_EQ(products(), 3);
    split.later();
    EXPECT_EQ(products(), 3);
  });
}

// No gradient is wanted from now(), but it still computes the part that the
// weights' gradients have in common.
TEST(SplitGrad, OfTheFirstLayers) {
  run(1, [&](Runtime&) {
    const Mesh m = Mesh::parse("a=1");
    DistTensor table = randn({4, 3}, m, {}, kF64, {5, 0}).set_requires_grad();
    DistTensor w = randn({3, 3}, m, {}, kF64, {5, 1}).set_requires_grad();
    const auto f = [&] { return sum(gelu(linear(table * table, w))); };
    const auto whole = grad(f(), {table, w});
    SplitGrad split(f(), {}, {}, {table, w});
    EXPECT_TRUE(split.now().empty());
    const auto rest = split.later();
    expect_near(rest[0], whole[0]);
    expect_near(rest[1], whole[1]);
  });
}

TEST(SplitGrad, ThroughACheckpoint) {
  run(1, [&](Runtime&) {
    const Layer layer(Mesh::parse("dp=1,tp=1"));
    const auto f = [&] {
      return checkpoint(
          [&](const DistTensor& x) {
            return sum(gelu(linear(x, layer.w1, layer.b1)));
          },
          layer.x);
    };
    const auto whole = grad(f(), {layer.x, layer.w1});
    SplitGrad split(f(), {}, {layer.x}, {layer.w1});
    expect_near(split.now()[0], whole[0]);
    expect_near(split.later()[0], whole[1]);
  });
}

// A gradient has no graph, even where the cotangent has one.
TEST(SplitGrad, RecordsNothing) {
  run(2, [](Runtime&) {
    const Mesh m = Mesh::parse("a=2");
    const DistTensor x = randn({4}, m, "S0", kF64, {6, 0}).set_requires_grad();
    const DistTensor w = randn({4}, m, "R", kF64, {6, 1}).set_requires_grad();
    const DistTensor c = randn({4}, m, "R", kF64, {6, 2}).set_requires_grad();
    SplitGrad split(x + w, c, {x}, {w});
    EXPECT_EQ(split.now()[0].layout().to_string(m), "S0");
    EXPECT_FALSE(split.now()[0].requires_grad());
  });
}

TEST(SplitGrad, Refuses) {
  run(1, [&](Runtime&) {
    const Layer layer(Mesh::parse("dp=1,tp=1"));
    const DistTensor y = gelu(layer.x);
    EXPECT_EQ(error_of([&] { SplitGrad(y, {}, {layer.x}, {}); }),
              "[grad] f64[5, 3](R,R) is not a scalar; pass a cotangent of its "
              "shape, or sum it");
    SplitGrad split(layer(), {}, {layer.x}, layer.weights());
    EXPECT_EQ(
        error_of(
            [&] { split.later({.keep_partial = true, .add_to = {layer.w1}}); }),
        "[grad] add_to has length 1, but the number of inputs is 5; pass one "
        "gradient for each input, or an empty list");
    const auto rest = split.later();
    EXPECT_EQ(error_of([&] { split.later(); }),
              "[grad] later() was called before; call it once, and keep its "
              "result");
    EXPECT_EQ(error_of([&] { settle({layer.x}, rest); }),
              "[settle] the number of gradients is 5, but that of inputs is 1; "
              "pass one gradient for each input");
  });
}

}  // namespace
}  // namespace dtensor
