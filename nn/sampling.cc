// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/ops/kernels/random.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"

namespace dtensor::nn {
namespace {

// The uniform number in [0, 1) for this seed and position.
double uniform_at(uint64_t seed, int64_t position) {
  double u = 0;
  cpu_kernels().run(Stream{},
                    kernels::RandomBox{.type = DType::kF64,
                                       .key = {seed, hash_text("generate")},
                                       .global = {position + 1},
                                       .lo = {position},
                                       .size = {1},
                                       .out = &u,
                                       .out_strides = {1},
                                       .p1 = 1});
  return u;
}

// Applies the penalties and biases of `s` to the logits.
void adjust(std::vector<double>& logits, const Sampling& s,
            std::span<const int64_t> text, int64_t prompt) {
  const auto at = [&](int64_t token) -> double& {
    return logits[static_cast<size_t>(token)];
  };
  if (s.repetition_penalty != 1) {
    std::vector<int64_t> seen(text.begin(), text.end());
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    for (const int64_t t : seen)
      at(t) = at(t) > 0 ? at(t) / s.repetition_penalty
                        : at(t) * s.repetition_penalty;
  }
  if (s.presence_penalty != 0 || s.frequency_penalty != 0) {
    std::map<int64_t, int64_t> counts;
    for (const int64_t t : text.subspan(static_cast<size_t>(prompt)))
      ++counts[t];
    for (const auto& [t, n] : counts)
      at(t) -=
          s.presence_penalty + s.frequency_penalty * static_cast<double>(n);
  }
  for (const auto& [t, bias] : s.logit_bias) at(t) += bias;
}

int64_t likeliest_of(std::span<const double> logits) {
  size_t best = 0;
  for (size_t i = 1; i < logits.size(); ++i)
    if (logits[i] > logits[best]) best = i;
  return static_cast<int64_t>(best);
}

// The indices of the n largest logits, the largest first; the smaller index
// first among equals.
std::vector<int64_t> largest(std::span<const double> logits, int64_t n) {
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  n = std::min(n, std::ssize(order));
  std::partial_sort(order.begin(), order.begin() + n, order.end(),
                    [&](int64_t a, int64_t b) {
                      const double x = logits[static_cast<size_t>(a)],
                                   y = logits[static_cast<size_t>(b)];
                      return x != y ? x > y : a < b;
                    });
  order.resize(static_cast<size_t>(n));
  return order;
}

// The weight of each token, exp((logit - largest) / temperature), or 0 for
// those that top_k, top_p or min_p drop.
std::vector<double> weights_of(std::span<const double> logits,
                               const Sampling& s, int64_t likeliest) {
  const double most = logits[static_cast<size_t>(likeliest)];
  std::vector<double> weights(logits.size());
  for (size_t i = 0; i < logits.size(); ++i)
    weights[i] = std::exp((logits[i] - most) / s.temperature);
  const auto keep = [&](const std::vector<int64_t>& these) {
    std::vector<double> kept(weights.size(), 0);
    for (const int64_t t : these)
      kept[static_cast<size_t>(t)] = weights[static_cast<size_t>(t)];
    weights = std::move(kept);
  };
  if (s.top_k > 0 && s.top_k < std::ssize(weights))
    keep(largest(weights, s.top_k));
  const double total =
      s.top_p < 1 ? std::accumulate(weights.begin(), weights.end(), 0.0) : 0;
  if (total > 0) {  // it is NaN if a logit is
    std::vector<int64_t> order =
        largest(weights, std::count_if(weights.begin(), weights.end(),
                                       [](double w) { return w > 0; }));
    double sum = 0;
    size_t n = 0;
    // At least one token stays.
    do sum += weights[static_cast<size_t>(order[n++])];
    while (n < order.size() && sum < s.top_p * total);
    order.resize(n);
    keep(order);
  }
  if (s.min_p > 0)  // the largest weight is 1
    for (double& w : weights)
      if (w < s.min_p) w = 0;
  return weights;
}

}  // namespace

void check_sampling(const Sampling& s, int64_t vocab) {
  const auto range = [](const char* name, double value, double lo, double hi) {
    DT_CHECK(value >= lo && value <= hi, "generate",
             "{} is {}; write a number from {} to {}", name, value, lo, hi);
  };
  range("temperature", s.temperature, 0, 1e300);
  range("top_p", s.top_p, 0, 1);
  range("min_p", s.min_p, 0, 1);
  range("presence_penalty", s.presence_penalty, -1e6, 1e6);
  range("frequency_penalty", s.frequency_penalty, -1e6, 1e6);
  range("repetition_penalty", s.repetition_penalty, 1e-6, 1e6);
  DT_CHECK(s.top_k >= 0, "generate",
           "top_k is {}; write a number of tokens, or 0 for all", s.top_k);
  for (const auto& [token, bias] : s.logit_bias) {
    DT_CHECK(token >= 0 && token < vocab, "generate",
             "logit_bias has the token {}, which is not in the vocabulary of "
             "{}; write tokens from 0 to {}",
             token, vocab, vocab - 1);
    DT_CHECK(
        bias >= -1e6 && bias <= 1e6, "generate",
        "logit_bias of the token {} is {}; write a number from -1e6 to 1e6",
        token, bias);
  }
}

bool takes_likeliest(const Sampling& s) {
  return s.temperature == 0 && s.repetition_penalty == 1 &&
         s.presence_penalty == 0 && s.frequency_penalty == 0 &&
         s.logit_bias.empty();
}

DrawnToken draw(std::span<const double> logits, const Sampling& s,
                std::span<const int64_t> text, int64_t prompt, int64_t position,
                int64_t likeliest) {
  std::vector<double> changed(logits.begin(), logits.end());
  adjust(changed, s, text, prompt);
  DrawnToken drawn;
  drawn.id = likeliest_of(changed);
  if (s.temperature > 0) {
    const std::vector<double> weights = weights_of(changed, s, drawn.id);
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    const double u = uniform_at(s.seed, position);
    double sum = 0;
    // If rounding or NaN lets no sum exceed u * total, the likeliest stays.
    for (size_t i = 0; i < weights.size(); ++i)
      if ((sum += weights[i]) > u * total) {
        drawn.id = static_cast<int64_t>(i);
        break;
      }
  }
  const double most = logits[static_cast<size_t>(likeliest_of(logits))];
  double sum = 0;
  for (const double x : logits) sum += std::exp(x - most);
  const auto logprob = [&](int64_t token) {
    return logits[static_cast<size_t>(token)] - most - std::log(sum);
  };
  drawn.logprob = logprob(drawn.id);
  if (likeliest > 0)
    for (const int64_t token : largest(logits, likeliest))
      drawn.likeliest.emplace_back(token, logprob(token));
  return drawn;
}

}  // namespace dtensor::nn
