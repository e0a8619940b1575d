// SPDX-License-Identifier: Apache-2.0
// Compares draws with the probabilities that the logits processors of
// transformers 5.24 give for the same logits and settings.
#include "dtensor/nn/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "dtensor/placement/error.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

using Values = std::vector<double>;

const Values kLogits = {2.0, -1.0, 0.5, 3.0, 1.9, -2.5, 0.0, 2.9};
const std::vector<int64_t> kText = {3, 5, 3, 7};
const Values kPlain = {0.133296297118, 0.006636431858, 0.029742424123,
                       0.362336902257, 0.120611477318, 0.001480788103,
                       0.018039692125, 0.327855987097};

// Expects that each token's share in many draws is its probability.
void expect_shares(const Sampling& s, const Values& probability,
                   int64_t prompt = 4) {
  constexpr int64_t kDraws = 20'000;
  Values count(kLogits.size(), 0);
  for (int64_t i = 0; i < kDraws; ++i)
    ++count[static_cast<size_t>(draw(kLogits, s, kText, prompt, i).id)];
  for (size_t t = 0; t < count.size(); ++t) {
    const double p = probability[t], n = static_cast<double>(kDraws);
    if (p == 0) {
      EXPECT_EQ(count[t], 0) << t;
      continue;
    }
    EXPECT_NEAR(count[t] / n, p, 5 * std::sqrt(p * (1 - p) / n)) << t;
  }
}

TEST(Sampling, SharesAreProbabilities) {
  expect_shares({}, kPlain);
  expect_shares({.seed = 7}, kPlain);
}

TEST(Sampling, TemperatureAndFilters) {
  expect_shares(
      {.temperature = 0.7},
      {0.101553845981, 0.001397765478, 0.011914212524, 0.423757174133,
       0.088034784715, 0.00016398468, 0.005832503371, 0.367345729117});
  const Values three = {0.161867695785, 0, 0, 0.440002016067, 0, 0, 0,
                        0.398130288148};
  expect_shares({.top_k = 3}, three);
  expect_shares({.top_p = 0.8}, three);
  expect_shares({.min_p = 0.3}, {0.14118864887, 0, 0, 0.383790538609,
                                 0.1277527725, 0, 0, 0.347268040021});
}

TEST(Sampling, Penalties) {
  expect_shares(
      {.repetition_penalty = 1.3},
      {0.202503413598, 0.010082051298, 0.045184619107, 0.27546182462,
       0.183232665903, 0.001062640389, 0.027405856836, 0.25506692825});
  expect_shares({.repetition_penalty = 1.3,
                 .temperature = 1.5,
                 .top_k = 6,
                 .top_p = 0.9,
                 .min_p = 0.2},
                {0.212884614951, 0, 0.078315873182, 0.261354705663,
                 0.199155044292, 0, 0, 0.248289761912});
  // Penalties are for generated tokens: 3 occurs twice, 5 and 7 once. A bias
  // that takes the penalties back gives the plain probabilities.
  expect_shares({.presence_penalty = 0.5,
                 .frequency_penalty = 0.25,
                 .logit_bias = {{3, 1.0}, {7, 0.75}, {5, 0.75}}},
                kPlain, 0);
  expect_shares({.presence_penalty = 0.5, .frequency_penalty = 0.25}, kPlain,
                4);
  expect_shares({.logit_bias = {{3, 1e5}}}, {0, 0, 0, 1, 0, 0, 0, 0});
}

TEST(Sampling, TheLikeliestWithTheirLogarithms) {
  const DrawnToken t = draw(kLogits, {.temperature = 0}, kText, 4, 0, 3);
  EXPECT_EQ(t.id, 3);
  EXPECT_NEAR(t.logprob, std::log(kPlain[3]), 1e-9);
  ASSERT_EQ(t.likeliest.size(), 3u);
  const int64_t order[] = {3, 7, 0};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(t.likeliest[i].first, order[i]);
    EXPECT_NEAR(t.likeliest[i].second,
                std::log(kPlain[static_cast<size_t>(order[i])]), 1e-9);
  }
  // If logits are equal, the smaller token; if they are NaN, the first.
  EXPECT_EQ(draw(Values{1, 2, 2}, {.temperature = 0}, {}, 0, 0).id, 1);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(draw(Values{nan, nan}, {}, {}, 0, 0).id, 0);
}

TEST(Sampling, NaNGivesSomeToken) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Values& logits : {Values{nan, nan}, Values{1, nan, 2}})
    for (const Sampling& s : {Sampling{.top_p = 0.9}, Sampling{.top_k = 1},
                              Sampling{.min_p = 0.5}}) {
      const int64_t id = draw(logits, s, {}, 0, 0).id;
      EXPECT_GE(id, 0);
      EXPECT_LT(id, std::ssize(logits));
    }
}

TEST(Sampling, OutOfRange) {
  const auto error = [](const Sampling& s) {
    return dtensor::testing::error_of([&] { check_sampling(s, 8); });
  };
  EXPECT_EQ(error({.temperature = -1}),
            "[generate] temperature is -1; write a number from 0 to 1e+300");
  EXPECT_EQ(error({.top_p = 1.5}),
            "[generate] top_p is 1.5; write a number from 0 to 1");
  EXPECT_EQ(error({.logit_bias = {{8, 1}}}),
            "[generate] logit_bias has the token 8, which is not in the "
            "vocabulary of 8; write tokens from 0 to 7");
  EXPECT_EQ(error({.top_k = -1}),
            "[generate] top_k is -1; write a number of tokens, or 0 for all");
  EXPECT_EQ(error({}), "no error");
}

}  // namespace
}  // namespace dtensor::nn
