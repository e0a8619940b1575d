// SPDX-License-Identifier: Apache-2.0
// Chooses the next token by a model's logits.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace dtensor::nn {

// The members are applied in this order. (transformers applies those of them
// that it has in the same order.) A token is drawn with the uniform number of
// Philox(seed, position), so that every mesh draws the same.
struct Sampling {
  // Logits of tokens that the text contains, prompt included, are divided by
  // this if they are positive, and multiplied if not (Keskar et al., arXiv
  // 1909.05858). 1: no penalty.
  double repetition_penalty = 1;
  // Both are subtracted from the logits of generated tokens (a prompt's do not
  // count): presence_penalty once for a token, and frequency_penalty as often
  // as the token was generated.
  double presence_penalty = 0, frequency_penalty = 0;
  std::map<int64_t, double> logit_bias = {};  // added to the logits
  double temperature = 1;  // 0: always take the likeliest token
  int64_t top_k = 0;       // keep the k likeliest tokens; 0: all
  // Keep the likeliest tokens until their probabilities sum to top_p (Holtzman
  // et al., arXiv 1904.09751).
  double top_p = 1;
  // Keep tokens whose probability is at least min_p times that of the likeliest
  // token (Nguyen et al., arXiv 2407.01082).
  double min_p = 0;
  uint64_t seed = 0;
};

// Throws Error, with the value and the range, if a member is out of range for a
// vocabulary of this size.
void check_sampling(const Sampling&, int64_t vocab);

// Whether draw() always takes the token of the largest logit, because this
// Sampling neither changes logits nor draws at random.
bool takes_likeliest(const Sampling&);

struct DrawnToken {
  int64_t id = 0;
  // The logarithm of its probability in the model's own distribution, before
  // `Sampling` changes the logits.
  double logprob = 0;
  // The likeliest tokens of that distribution and their logprobs, the likeliest
  // first.
  std::vector<std::pair<int64_t, double>> likeliest = {};
};

// Draws the generated token number `position`, from 0, from `logits` [vocab].
// `text` is the prompt, of `prompt` tokens, followed by the tokens that were
// drawn before. DrawnToken::likeliest gets `likeliest` tokens, or all if the
// vocabulary has fewer. If all logits are NaN, token 0 is drawn.
DrawnToken draw(std::span<const double> logits, const Sampling&,
                std::span<const int64_t> text, int64_t prompt, int64_t position,
                int64_t likeliest = 0);

}  // namespace dtensor::nn
