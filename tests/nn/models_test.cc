// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/models.h"

#include <gtest/gtest.h>

#include <cmath>

#include "dtensor/nn/optimizers.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/placement/error.h"
#include "tests/nn/on_mesh.h"

namespace dtensor::nn {
namespace {

using Values = std::vector<double>;

ModelConfig tiny(const std::string& name, DType dtype = DType::kF64) {
  ModelConfig c{.name = name,
                .layers = 2,
                .hidden = 24,
                .heads = 6,
                .seq = 5,
                .vocab = 17,
                .dtype = dtype};
  if (name == "llama") c.kv_heads = 2;
  return c;
}

struct Batch {
  DistTensor tokens, targets;
};
Batch batch(const Mesh& m, int64_t rows, int64_t seq, uint64_t step = 0) {
  const auto draw = [&](uint64_t stream) {
    return randint(0, 17, {rows, seq}, m, batch_placements(m), DType::kI64,
                   {5, 2 * step + stream});
  };
  return {draw(0), draw(1)};
}

struct Gradients {
  double loss = 0, norm = 0;
  std::vector<std::string> names;
  std::vector<Values> values;
};

Gradients gradients(const std::string& mesh, const ModelConfig& config,
                    int64_t rows) {
  return on_mesh<Gradients>(mesh, [&](const Mesh& m) {
    const auto model = make_model(config, m, 1);
    const Batch b = batch(m, rows, config.seq);
    const DistTensor loss = model->loss(b.tokens, b.targets);
    const auto parameters = model->named_parameters();
    const auto grads = grad(loss, model->parameters());
    Gradients out;
    out.loss = loss.item();
    out.norm = global_norm(grads);
    for (size_t i = 0; i < grads.size(); ++i) {
      EXPECT_EQ(grads[i].spec(), parameters[i].tensor.spec());
      out.names.push_back(parameters[i].name);
      out.values.push_back(values(grads[i]));
    }
    return out;
  });
}

void expect_equal(const Gradients& got, const Gradients& expected,
                  const std::string& where) {
  EXPECT_NEAR(got.loss, expected.loss, 1e-11 * expected.loss) << where;
  EXPECT_NEAR(got.norm, expected.norm, 1e-11 * expected.norm) << where;
  ASSERT_EQ(got.names, expected.names) << where;
  for (size_t i = 0; i < got.names.size(); ++i) {
    double largest = 0, off = 0;
    for (size_t j = 0; j < got.values[i].size(); ++j) {
      largest = std::max(largest, std::abs(expected.values[i][j]));
      off = std::max(off, std::abs(got.values[i][j] - expected.values[i][j]));
    }
    // The keys' bias has no gradient: it shifts every score of a query alike.
    EXPECT_LE(off, 1e-11 * std::max(largest, 1e-3))
        << got.names[i] << " " << where;
  }
}

class Models : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, Models,
                         ::testing::Values("gpt", "llama", "qwen2"));

TEST_P(Models, LossAndGradientsAreEqualOnEveryMesh) {
  const ModelConfig config = tiny(GetParam());
  // Three rows: the ranks of dp=2 get one and two.
  const Gradients one = gradients("dp=1", config, 3);
  EXPECT_NEAR(one.loss, std::log(17.), 1);
  for (const std::string& mesh : test_meshes())
    expect_equal(gradients(mesh, config, 3), one, mesh);
}

TEST_P(Models, MoreRanksThanHeadsOrRows) {
  ModelConfig config = tiny(GetParam());
  config.heads = 2;
  config.kv_heads = GetParam() == std::string("llama") ? 1 : 0;
  const Gradients one = gradients("dp=1", config, 1);
  for (const char* mesh : {"tp=3", "tp=5", "dp=3", "dp=2,tp=3"})
    expect_equal(gradients(mesh, config, 1), one, mesh);
}

struct Curve {
  Values losses, norms;
};
Curve train(const std::string& mesh, const ModelConfig& config, int steps) {
  return on_mesh<Curve>(mesh, [&](const Mesh& m) {
    const auto model = make_model(config, m, 1);
    AdamW optimizer(model->parameters());
    Curve curve;
    for (int i = 0; i < steps; ++i) {
      const Batch b = batch(m, 4, config.seq, uint64_t(i % 2));
      const DistTensor loss = model->loss(b.tokens, b.targets);
      const auto grads = grad(loss, optimizer.parameters());
      const double norm = global_norm(grads);
      curve.losses.push_back(loss.item());
      curve.norms.push_back(norm);
      optimizer.step(grads, {.lr = 1e-2, .grad_scale = clip_scale(norm, 1)});
    }
    return curve;
  });
}

TEST_P(Models, TrainingIsEqualOnEveryMesh) {
  const ModelConfig config = tiny(GetParam());
  const Curve one = train("dp=1", config, 6);
  EXPECT_LT(one.losses.back(), one.losses.front());
  for (const std::string& mesh : test_meshes()) {
    const Curve c = train(mesh, config, 6);
    for (size_t i = 0; i < one.losses.size(); ++i) {
      EXPECT_NEAR(c.losses[i], one.losses[i], 1e-11 * one.losses[i])
          << mesh << " step " << i;
      EXPECT_NEAR(c.norms[i], one.norms[i], 1e-10 * one.norms[i])
          << mesh << " step " << i;
    }
  }
}

// Only a few steps: at this learning rate, each multiplies the rounding errors.
TEST_P(Models, HalvesFollowF32) {
  const Curve f32 = train("dp=1", tiny(GetParam(), DType::kF32), 5);
  for (const char* mesh : {"dp=1", "dp=2,tp=2"})
    for (DType t : {DType::kBF16, DType::kF16}) {
      const Curve c = train(mesh, tiny(GetParam(), t), 5);
      for (size_t i = 0; i < c.losses.size(); ++i)
        EXPECT_NEAR(c.losses[i], f32.losses[i], 0.02 * f32.losses[i])
            << name(t) << " on " << mesh << " step " << i;
    }
}

TEST_P(Models, TheLossOfHalvesIsF32) {
  on_mesh<int>("tp=2", [&](const Mesh& m) {
    for (DType t : {DType::kBF16, DType::kF16}) {
      const ModelConfig config = tiny(GetParam(), t);
      const auto model = make_model(config, m);
      const Batch b = batch(m, 1, config.seq);
      EXPECT_EQ(model->logits(b.tokens).dtype(), t);
      EXPECT_EQ(model->loss(b.tokens, b.targets).dtype(), DType::kF32);
    }
    return 0;
  });
}

TEST_P(Models, ShorterSequencesAreFineLongerOnesAreNot) {
  on_mesh<int>("dp=2", [&](const Mesh& m) {
    const ModelConfig config = tiny(GetParam());
    const auto model = make_model(config, m);
    EXPECT_EQ(model->logits(batch(m, 2, 3).tokens).shape(), (Shape{2, 3, 17}));
    EXPECT_THROW(model->logits(batch(m, 2, 6).tokens), Error);
    EXPECT_THROW(model->logits(zeros({3}, m, {}, DType::kI64)), Error);
    return 0;
  });
}

}  // namespace
}  // namespace dtensor::nn
