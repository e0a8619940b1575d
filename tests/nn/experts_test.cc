// SPDX-License-Identifier: Apache-2.0
// Compares parts of the layer of experts with formulas and loops. goldens_test
// compares whole models.
#include <gtest/gtest.h>

#include "dtensor/nn/config.h"
#include "dtensor/nn/layers.h"
#include "dtensor/nn/parallel.h"
#include "dtensor/ops/grad.h"
#include "tests/nn/on_mesh.h"

namespace dtensor::nn {
namespace {

struct Loads {
  // [layer][expert]
  std::vector<std::vector<double>> chosen, probability;
};

// The number of experts times the sum over them of two means over the layers:
// of the share of tokens that chose the expert, and of its probability.
double reference(const Loads& l) {
  const size_t layers = l.chosen.size(), experts = l.chosen[0].size();
  double loss = 0;
  for (size_t e = 0; e < experts; ++e) {
    double share = 0, mean = 0;
    for (size_t i = 0; i < layers; ++i) {
      share += l.chosen[i][e] / static_cast<double>(layers);
      mean += l.probability[i][e] / static_cast<double>(layers);
    }
    loss += static_cast<double>(experts) * share * mean;
  }
  return loss;
}

TEST(LoadBalancingLoss, IsTheFormula) {
  const std::vector<Loads> all{
      {{{0.5, 1, 0.5}}, {{0.2, 0.7, 0.1}}},
      {{{0.5, 1, 0.5}, {0, 1, 1}}, {{0.2, 0.7, 0.1}, {0.3, 0.3, 0.4}}},
      {{{2.0 / 3, 2.0 / 3, 2.0 / 3}}, {{1.0 / 3, 1.0 / 3, 1.0 / 3}}}};
  EXPECT_NEAR(reference(all[2]), 2, 1e-12);  // k, if all is even
  for (const Loads& l : all)
    run(2, [&](Runtime&) {
      const Mesh mesh = Mesh::parse("dp=2");
      const auto put = [&](const std::vector<double>& v) {
        return DistTensor::from_global(Tensor::from({3}, v.data()), mesh, "R");
      };
      std::vector<RouterLoad> layers;
      std::vector<DistTensor> probabilities;
      for (size_t i = 0; i < l.chosen.size(); ++i) {
        layers.push_back({put(l.chosen[i]), put(l.probability[i])});
        probabilities.push_back(layers[i].probability.set_requires_grad());
      }
      RouterLoad sum = layers[0];
      for (size_t i = 1; i < layers.size(); ++i) sum = sum + layers[i];
      const DistTensor loss = load_balancing_loss(sum, std::ssize(layers));
      EXPECT_NEAR(values(loss)[0], reference(l), 1e-12);
      // The gradient of a layer's probabilities: experts / layers times the
      // mean share.
      const auto g = grad(loss, probabilities);
      for (size_t e = 0; e < 3; ++e) {
        double share = 0;
        for (const auto& chosen : l.chosen) share += chosen[e];
        const auto n = static_cast<double>(l.chosen.size());
        EXPECT_NEAR(values(g[0])[e], 3 / n * share / n, 1e-12);
      }
    });
}

TEST(ExpertParallel, Layouts) {
  const Mesh mesh = Mesh::parse("ep=2,tp=3");
  const auto text = [&](const ParallelPlan& plan, const char* name) {
    return layout_of(plan, name, mesh, {4, 6, 6}).to_string(mesh);
  };
  EXPECT_EQ(text(expert_parallel("ep", "tp"), "m.experts.gate_proj"), "S0,S1");
  EXPECT_EQ(text(expert_parallel("ep", "tp"), "m.experts.up_proj"), "S0,S1");
  EXPECT_EQ(text(expert_parallel("ep", "tp"), "m.experts.down_proj"), "S0,S2");
  EXPECT_EQ(text(expert_parallel("ep"), "m.experts.down_proj"), "S0,R");
  EXPECT_EQ(text(expert_parallel("tp"), "m.experts.gate_proj"), "R,S0");
  EXPECT_EQ(text(expert_parallel(), "m.gate.weight"), "R,R");
  // The plan that the programs use.
  EXPECT_EQ(text(default_plan({.name = "mixtral"}, mesh),
                 "model.layers.0.mlp.experts.down_proj"),
            "S0,S2");
}

}  // namespace
}  // namespace dtensor::nn
