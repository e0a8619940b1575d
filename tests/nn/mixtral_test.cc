// SPDX-License-Identifier: Apache-2.0
// The router loss of Mixtral, which balances its experts, against its
// definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "dtensor/nn/layers.h"
#include "dtensor/nn/models.h"
#include "tests/nn/on_mesh.h"

namespace dtensor::nn {
namespace {

constexpr int64_t kExperts = 5, kChosen = 2;

// The input of a layer, and its router's weights.
struct Seen {
  std::vector<double> tokens, weight;
};

class Spy : public MixtureOfExperts {
 public:
  Spy(const Scope& at, const ModelConfig& c, std::vector<Seen>* seen)
      : MixtureOfExperts(at, c.hidden, c.ffn_size(), kExperts, kChosen),
        seen_(seen) {}
  Mixed forward(const DistTensor& x) const override {
    seen_->push_back({values(x), values(parameter(path() + ".gate.weight"))});
    return MixtureOfExperts::forward(x);
  }

 private:
  std::vector<Seen>* seen_;
};

// The number of experts times the sum over them of the share of the tokens that
// chose the expert and its mean probability, multiplied; both are means over
// the layers.
double balance_of(const std::vector<Seen>& layers, int64_t hidden) {
  std::vector<double> chosen(kExperts), probability(kExperts);
  double n = 0;
  for (const Seen& layer : layers) {
    const auto tokens = static_cast<int64_t>(layer.tokens.size()) / hidden;
    n += static_cast<double>(tokens);
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<double> p(kExperts);
      for (size_t e = 0; e < p.size(); ++e)
        p[e] = std::exp(std::inner_product(
            &layer.tokens[static_cast<size_t>(t * hidden)],
            &layer.tokens[static_cast<size_t>(t * hidden)] + hidden,
            &layer.weight[e * static_cast<size_t>(hidden)], 0.0));
      const double all = std::accumulate(p.begin(), p.end(), 0.0);
      std::vector<size_t> order(kExperts);
      std::iota(order.begin(), order.end(), size_t{0});
      std::sort(order.begin(), order.end(),
                [&](size_t a, size_t b) { return p[a] > p[b]; });
      for (int64_t k = 0; k < kChosen; ++k) ++chosen[order[size_t(k)]];
      for (size_t e = 0; e < p.size(); ++e) probability[e] += p[e] / all;
    }
  }
  double sum = 0;
  for (size_t e = 0; e < chosen.size(); ++e)
    sum += chosen[e] / n * (probability[e] / n);
  return static_cast<double>(kExperts) * sum;
}

TEST(Mixtral, TheLossBalancesExpertsOverAllLayers) {
  ModelConfig config{.name = "mixtral",
                     .layers = 3,
                     .hidden = 8,
                     .heads = 2,
                     .ffn = 6,
                     .experts = kExperts,
                     .top_k = kChosen,
                     .router_loss = 0.5,
                     .seq = 6,
                     .vocab = 13,
                     .dtype = DType::kF64};
  for (const char* mesh : {"dp=1", "ep=2", "dp=2,ep=2"})
    on_mesh<int>(mesh, [&](const Mesh& m) {
      const auto model = make_model(config, m, 3);
      std::vector<Seen> seen;
      for (const char* layer : {"0", "1", "2"})
        model->replace("model.layers." + std::string(layer) + ".mlp",
                       [&](const Scope& at, const Module&) {
                         return std::make_unique<Spy>(at, config, &seen);
                       });
      std::vector<int64_t> numbers;
      for (int64_t i = 0; i < 4 * config.seq; ++i)
        numbers.push_back((i * i + 3 * i) % config.vocab);
      const DistTensor tokens = DistTensor::from_global(
          Tensor::from<int64_t>({4, config.seq}, numbers.data()), m,
          batch_placements(m));
      const double text = model->text_loss(tokens, tokens).item();
      EXPECT_EQ(seen.size(), 3u);
      seen.clear();
      const double all = model->loss(tokens, tokens).item();
      EXPECT_NEAR((all - text) / config.router_loss,
                  balance_of(seen, config.hidden), 1e-11)
          << mesh;
      return 0;
    });
}

// The loss needs only the sum of the layers' loads.
TEST(Mixtral, LoadsOfLayersAddUp) {
  on_mesh<int>("a=1", [&](const Mesh& m) {
    const auto load = [&](double a, double b) {
      return RouterLoad{
          DistTensor::from_global(
              Tensor::from<double>({2}, std::vector{a, 2 - a}.data()), m, {}),
          DistTensor::from_global(
              Tensor::from<double>({2}, std::vector{b, 1 - b}.data()), m, {})};
    };
    const RouterLoad first = load(0.5, 0.25), second = load(1.5, 0.75);
    // The means are (1, 1) and (1/2, 1/2).
    EXPECT_NEAR(load_balancing_loss(first + second, 2).item(), 2, 1e-15);
    EXPECT_NEAR(load_balancing_loss(first, 1).item(), 2 * (0.125 + 1.125),
                1e-15);
    return 0;
  });
}

}  // namespace
}  // namespace dtensor::nn
