// SPDX-License-Identifier: Apache-2.0
// Draws at a temperature from known logits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "dtensor/nn/models.h"
#include "dtensor/ops/create.h"
#include "tests/nn/on_mesh.h"

namespace dtensor::nn {
namespace {

const std::vector<double> kLogits = {0.5, -1, 2, 1, -0.25};

// A model that gives the same logits for every text.
class Fixed : public LanguageModel {
 public:
  explicit Fixed(const Mesh& m)
      : LanguageModel({.mesh = m, .plan = nullptr},
                      {.hidden = 1, .heads = 1, .seq = 4, .vocab = 5}) {}
  DistTensor embed(const DistTensor& tokens) const override {
    return ones({1, tokens.size(1), 1}, mesh(), {}, DType::kF64);
  }
  DistTensor block(int64_t, const DistTensor& x) const override { return x; }
  DistTensor last_norm(const DistTensor& x) const override { return x; }
  DistTensor project(const DistTensor&, const DistTensor&) const override {
    return DistTensor::from_global(
        Tensor::from<double>({1, 1, 5}, kLogits.data()), mesh(), "S2");
  }
};

TEST(Temperature, DividesTheLogits) {
  for (double t : {0.5, 1.0, 2.0}) {
    constexpr int64_t kDraws = 4000;
    const auto drawn =
        on_mesh<std::vector<int64_t>>("tp=2", [&](const Mesh& m) {
          return generate(Fixed(m),
                          {.tokens = kDraws,
                           .prompt = {0},
                           .sampling = {.temperature = t, .seed = 7}});
        });
    double sum = 0;
    for (double l : kLogits) sum += std::exp(l / t);
    for (size_t k = 0; k < kLogits.size(); ++k) {
      const double p = std::exp(kLogits[k] / t) / sum;
      const double seen =
          static_cast<double>(std::count(drawn.begin(), drawn.end(), k)) /
          kDraws;
      // The tolerance is five standard deviations; with t halved or doubled it
      // would be 20.
      EXPECT_NEAR(seen, p, 5 * std::sqrt(p * (1 - p) / kDraws))
          << "temperature " << t << ", token " << k;
    }
  }
}

}  // namespace
}  // namespace dtensor::nn
