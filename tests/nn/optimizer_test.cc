#include "dtensor/nn/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "dtensor/ops/random.h"
#include "dtensor/placement/error.h"
#include "tests/nn/on_mesh.h"

namespace dtensor::nn {
namespace {

using Values = std::vector<double>;

// A matrix with uneven parts and a vector, and gradients for some steps.
struct Problem {
  std::vector<DistTensor> parameters;
  std::vector<std::vector<DistTensor>> grads;  // by step
};

Problem problem(const Mesh& mesh, DType dtype) {
  const Placements rows = {{"tp", Shard(0)}};
  const auto draw = [&](Shape s, Placements p, uint64_t stream, DType t) {
    return randn(s, mesh, p, t, {3, stream});
  };
  Problem p;
  p.parameters = {draw({5, 3}, rows, 0, dtype), draw({4}, {}, 1, dtype)};
  for (DistTensor& x : p.parameters) x.as_parameter();
  for (uint64_t step = 0; step < 4; ++step)
    p.grads.push_back({draw({5, 3}, rows, 10 + step, dtype),
                       draw({4}, {}, 20 + step, dtype)});
  return p;
}

// One element through torch.optim.AdamW, as its documentation writes it.
double adamw(double p, const Values& grads, double lr, double scale,
             double decay) {
  double m = 0, v = 0;
  for (size_t t = 1; t <= grads.size(); ++t) {
    const double g = grads[t - 1] * scale;
    p -= lr * decay * p;
    m = 0.9 * m + 0.1 * g;
    v = 0.999 * v + 0.001 * g * g;
    const double n = static_cast<double>(t);
    const double mhat = m / (1 - std::pow(0.9, n));
    const double vhat = v / (1 - std::pow(0.999, n));
    p -= lr * mhat / (std::sqrt(vhat) + 1e-8);
  }
  return p;
}

double sgd(double p, const Values& grads, double lr, double scale, double decay,
           double momentum, bool nesterov) {
  double b = 0;
  for (double grad : grads) {
    const double g = grad * scale + decay * p;
    b = momentum * b + g;
    p -= lr * (nesterov ? g + momentum * b : b);
  }
  return p;
}

template <class Reference>
void check_updates(
    const std::string& mesh, DType dtype, double tolerance,
    const std::function<std::unique_ptr<Optimizer>(std::vector<DistTensor>)>&
        make,
    Reference&& reference) {
  on_mesh<int>(mesh, [&](const Mesh& m) {
    const Problem p = problem(m, dtype);
    std::vector<Values> before;
    for (const DistTensor& x : p.parameters) before.push_back(values(x));
    const auto optimizer = make(p.parameters);
    for (const auto& g : p.grads)
      optimizer->step(g, {.lr = 0.1, .grad_scale = 0.5});
    EXPECT_EQ(optimizer->steps(), 4);
    for (size_t i = 0; i < p.parameters.size(); ++i) {
      const Values after = values(p.parameters[i]);
      std::vector<Values> grads;
      for (const auto& g : p.grads) grads.push_back(values(g[i]));
      for (size_t j = 0; j < after.size(); ++j) {
        Values g;
        for (const Values& step : grads) g.push_back(step[j]);
        // Decay is for matrices.
        const double expected = reference(before[i][j], g, i == 0 ? 0.01 : 0);
        EXPECT_NEAR(after[j], expected, tolerance * (1 + std::abs(expected)))
            << mesh << " " << name(dtype) << " parameter " << i << " at " << j;
      }
    }
    return 0;
  });
}

// What f32 keeps and bf16 rounds once: its parameters follow the f32 master.
double tolerance(DType t) {
  if (t == DType::kF64) return 1e-14;
  return t == DType::kF32 ? 1e-6 : 1. / 256;
}

TEST(Optimizer, AdamWIsTorchs) {
  for (DType t : {DType::kF64, DType::kF32, DType::kBF16})
    for (const char* mesh : {"tp=1", "tp=2", "tp=3", "tp=7"})
      check_updates(
          mesh, t, tolerance(t),
          [](std::vector<DistTensor> p) {
            return std::make_unique<AdamW>(std::move(p));
          },
          [](double p, const Values& g, double decay) {
            return adamw(p, g, 0.1, 0.5, decay);
          });
}

TEST(Optimizer, SgdIsTorchs) {
  for (DType t : {DType::kF64, DType::kF32, DType::kBF16})
    for (double momentum : {0.0, 0.9})
      for (bool nesterov : {false, true}) {
        if (nesterov && momentum == 0) continue;
        check_updates(
            "tp=2", t, tolerance(t),
            [&](std::vector<DistTensor> p) {
              return std::make_unique<SGD>(std::move(p),
                                           SGDOptions{.momentum = momentum,
                                                      .weight_decay = 0.01,
                                                      .nesterov = nesterov});
            },
            [&](double p, const Values& g, double decay) {
              return sgd(p, g, 0.1, 0.5, decay, momentum, nesterov);
            });
      }
}

TEST(Optimizer, SmallUpdatesAddUpInTheMasterCopy) {
  on_mesh<int>("tp=2", [](const Mesh& m) {
    DistTensor p = ones({8}, m, {{"tp", Shard(0)}}, DType::kBF16);
    p.as_parameter();
    SGD optimizer({p});
    // 1 - 1e-3 rounds to 1 in bf16; eight of them do not.
    for (int i = 0; i < 8; ++i)
      optimizer.step({ones({8}, m, {{"tp", Shard(0)}}, DType::kBF16)},
                     {.lr = 1e-3});
    EXPECT_EQ(values(p), Values(8, 0.9921875));
    return 0;
  });
}

TEST(Optimizer, TheUpdateRaisesTheVersion) {
  on_mesh<int>("tp=1", [](const Mesh& m) {
    DistTensor p = ones({2}, m);
    p.as_parameter();
    SGD optimizer({p});
    const uint64_t before = p.local().storage()->version();
    optimizer.step({ones({2}, m)}, {});
    EXPECT_GT(p.local().storage()->version(), before);
    return 0;
  });
}

TEST(Optimizer, Errors) {
  on_mesh<int>("tp=2", [](const Mesh& m) {
    DistTensor p = ones({4}, m, {{"tp", Shard(0)}});
    p.as_parameter();
    SGD optimizer({p});
    EXPECT_THROW(optimizer.step({}, {}), Error);
    EXPECT_THROW(optimizer.step({ones({4}, m)}, {}), Error);
    EXPECT_THROW(SGD({p}, {.momentum = -1}), Error);
    EXPECT_THROW(AdamW({p}, {.beta2 = 1}), Error);
    EXPECT_THROW(AdamW({zeros({4}, m, {}, DType::kI64)}), Error);
    return 0;
  });
}

}  // namespace
}  // namespace dtensor::nn
