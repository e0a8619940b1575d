// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/grad_scaler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "dtensor/nn/optimizers.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "tests/nn/on_mesh.h"

namespace dtensor::nn {
namespace {

constexpr int64_t kSize = 7, kSteps = 15;
constexpr float kInf = std::numeric_limits<float>::infinity();
// Step -> element and value: the gradients that are not finite, in one element.
const std::map<int64_t, std::pair<int64_t, float>> kBad = {
    {1, {5, kInf}},
    {2, {0, std::numeric_limits<float>::quiet_NaN()}},
    {7, {6, -kInf}},
    {13, {3, kInf}}};

// PyTorch 2.15's numbers on one CPU: SGD(lr=0.1, momentum=0.9) from w[j] = 0.1
// (j + 1) under GradScaler("cpu", init_scale=16, growth_interval=3), with the
// gradients below: the scale after each update(), and w[0] in the end, without
// clipping and with clip_grad_norm_(0.5). w[j] is (j + 1) w[0].
const std::vector<double> kScales = {16, 8, 4, 4, 4, 8, 8, 4,
                                     4,  4, 8, 8, 8, 4, 4};
constexpr double kLast = -0.9748697876930237, kLastClipped = -0.10386357456;
constexpr GradScalerOptions kOptions = {.init_scale = 16, .growth_interval = 3};

DistTensor on(const Mesh& mesh, const Placements& layout,
              const std::vector<float>& v) {
  return DistTensor::from_global(Tensor::from<float>({std::ssize(v)}, v.data()),
                                 mesh, layout);
}

std::vector<float> multiples(float first) {
  std::vector<float> v;
  for (int64_t j = 0; j < kSize; ++j)
    v.push_back(first * static_cast<float>(j + 1));
  return v;
}

// The gradient of step t, times the scale, as backward() gives it.
std::vector<float> scaled_gradient(int64_t t, double scale) {
  std::vector<float> g =
      multiples(static_cast<float>(scale * static_cast<double>(t % 3 + 1) / 8));
  if (const auto bad = kBad.find(t); bad != kBad.end())
    g[static_cast<size_t>(bad->second.first)] = bad->second.second;
  return g;
}

enum class Clip { kNone, kUnscaled, kFused };

struct Case {
  std::string mesh;
  Placements held, grad;
  bool stages = false;  // w lies on the second half of the mesh, alone
};

void check_as_torch(const Case& c, Clip clip) {
  on_mesh<int>(c.mesh, [&](const Mesh& all) {
    std::vector<int64_t> half;
    for (int64_t r = all.num_ranks() / 2; r < all.num_ranks(); ++r)
      half.push_back(r);
    const Mesh mesh = c.stages ? Mesh({{"tp", std::ssize(half)}}, half) : all;
    DistTensor w = on(mesh, c.held, multiples(0.1f));
    w.as_parameter().set_grad_layout(c.grad);
    // Another parameter, on all ranks, whose gradient is always finite.
    DistTensor other = on(all, {}, {1});
    other.as_parameter();
    SGD sgd({w, other}, {.momentum = 0.9});
    GradScaler scaler(kOptions);
    for (int64_t t = 0; t < kSteps; ++t) {
      std::vector<DistTensor> grads = {
          on(mesh, c.grad, scaled_gradient(t, scaler.get_scale())),
          on(all, {}, {0})};
      if (clip == Clip::kNone) {
        scaler.step(sgd, grads, {.lr = 0.1});
      } else {
        const bool fused = clip == Clip::kFused;
        if (!fused) scaler.unscale_(sgd, grads);
        const GradNorm norm =
            grad_norm(grads, 0.5, fused ? 1 / scaler.get_scale() : 1);
        scaler.step(sgd, grads, {.lr = 0.1, .clip = norm.clip},
                    fused ? norm : GradNorm());
      }
      scaler.update();
      EXPECT_EQ(scaler.get_scale(), kScales[static_cast<size_t>(t)])
          << c.mesh << " step " << t;
    }
    EXPECT_EQ(sgd.steps(), kSteps - std::ssize(kBad));
    const double last = clip == Clip::kNone ? kLast : kLastClipped;
    if (!w.here()) return 0;
    const std::vector<double> after = values(w);
    for (size_t j = 0; j < after.size(); ++j)
      EXPECT_NEAR(after[j], last * static_cast<double>(j + 1), 2e-6)
          << c.mesh << " element " << j;
    return 0;
  });
}

TEST(GradScaler, ScalesAndParametersAreTorchs) {
  const Placements tp = {{"tp", Shard(0)}}, dp = {{"dp", Shard(0)}};
  for (const Case& c : std::vector<Case>{
           {"tp=1", {}, {}},
           {"tp=2", tp, tp},
           {"tp=7", tp, tp},
           {"dp=3", {}, {}},
           {"dp=3", {}, dp},  // ZeRO
           {"dp=2,tp=2", tp, {{"tp", Shard(0)}, {"dp", Shard(0)}}},
           {"pp=2,tp=2", {}, {}, true},
           {"pp=2,tp=2", tp, tp, true}})
    for (const Clip clip : {Clip::kNone, Clip::kUnscaled, Clip::kFused})
      check_as_torch(c, clip);
}

// Without a scale, this gradient is 0 in f16: it is below 6e-8.
TEST(GradScaler, KeepsSmallGradientsOfF16) {
  on_mesh<int>("tp=2", [](const Mesh& m) {
    const Placements split = {{"tp", Shard(0)}};
    DistTensor w = cast(on(m, split, {1, 1, 1, 1}), DType::kF16);
    w.as_parameter();
    SGD sgd({w});
    const auto gradient = [&](const GradScaler& scaler) {
      const DistTensor loss = sum(cast(w, DType::kF32) * 1e-9);
      return grad(scaler.scale(loss), {w});
    };
    GradScaler none({.enabled = false}), scaler;
    EXPECT_EQ(none.scale(w).impl(), w.impl());
    EXPECT_EQ(values(gradient(none)[0]), std::vector<double>(4, 0));
    std::vector<DistTensor> grads = gradient(scaler);
    scaler.unscale_(sgd, grads);
    EXPECT_EQ(grads[0].dtype(), DType::kF32);
    for (double g : values(grads[0])) EXPECT_NEAR(g, 1e-9, 1e-12);
    scaler.step(sgd, grads, {.lr = 1e7});
    scaler.update();
    for (double x : values(w)) EXPECT_NEAR(x, 1 - 1e-2, 1e-3);
    return 0;
  });
}

// A skipped step makes as many collectives as other steps.
TEST(GradScaler, SkippedUpdatesSendWhatOthersDo) {
  on_mesh<int>("dp=3", [](const Mesh& m) {
    const Placements split = {{"dp", Shard(0)}};
    DistTensor w = on(m, {}, multiples(1));
    w.as_parameter().set_grad_layout(split);
    AdamW adamw({w});
    GradScaler scaler(kOptions);
    RankContext& context = RankContext::current();
    std::vector<size_t> events;
    for (int64_t t : {0, 1}) {
      context.record = true;
      scaler.step(adamw, {on(m, split, scaled_gradient(t, 16))}, {.lr = 0.1});
      scaler.update();
      events.push_back(context.events.size());
      context.events.clear();
      context.record = false;
    }
    EXPECT_GE(events[0], 2u);
    EXPECT_EQ(events[0], events[1]);
    EXPECT_EQ(scaler.get_scale(), 8);
    return 0;
  });
}

TEST(GradScaler, StateGoesOnBitForBit) {
  on_mesh<int>("dp=2", [](const Mesh& m) {
    DistTensor w = on(m, {}, multiples(1));
    w.as_parameter();
    SGD sgd({w});
    const auto step = [&](GradScaler& s, int64_t t) {
      s.step(sgd, {on(m, {}, scaled_gradient(t, 1))}, {.lr = 0.1});
      s.update();
      return s.get_scale();
    };
    const GradScalerOptions thirds = {
        .init_scale = 0.1, .backoff_factor = 1. / 3, .growth_interval = 3};
    GradScaler whole(thirds), first(thirds), second(thirds);
    for (int64_t t = 0; t < 5; ++t) {
      step(whole, t);
      step(first, t);
    }
    second.load_state(first.state());
    EXPECT_EQ(second.state(), whole.state());
    for (int64_t t = 5; t < kSteps; ++t)
      EXPECT_EQ(step(second, t), step(whole, t)) << t;
    EXPECT_TRUE(GradScaler({.enabled = false}).state().empty());
    EXPECT_THROW(second.load_state({}), Error);
    for (const char* scale : {"one", ""})
      EXPECT_THROW(second.load_state({{"grad_scaler.scale", scale},
                                      {"grad_scaler.growth_tracker", 1l}}),
                   Error)
          << scale;
    EXPECT_EQ(second.state(), whole.state());
    return 0;
  });
}

TEST(GradScaler, CallsOutOfOrderAreRefused) {
  on_mesh<int>("dp=2", [](const Mesh& m) {
    DistTensor w = on(m, {}, multiples(1));
    w.as_parameter();
    SGD sgd({w});
    std::vector<DistTensor> g = {on(m, {}, scaled_gradient(0, 1))};
    GradScaler scaler;
    EXPECT_TRUE(scaler.is_enabled());
    EXPECT_THROW(scaler.update(), Error);
    scaler.unscale_(sgd, g);
    EXPECT_THROW(scaler.unscale_(sgd, g), Error);
    scaler.step(sgd, g, {});
    EXPECT_THROW(scaler.step(sgd, g, {}), Error);
    EXPECT_THROW(scaler.unscale_(sgd, g), Error);
    scaler.update(3);
    EXPECT_EQ(scaler.get_scale(), 3);
    EXPECT_THROW(scaler.update(0), Error);
    EXPECT_THROW(GradScaler({.init_scale = 1e60}), Error);
    EXPECT_THROW(GradScaler({.growth_factor = 1}), Error);
    EXPECT_THROW(GradScaler({.backoff_factor = 1}), Error);
    EXPECT_THROW(GradScaler({.growth_interval = 0}), Error);
    return 0;
  });
}

}  // namespace
}  // namespace dtensor::nn
