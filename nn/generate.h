// Sampling from a language model.
#pragma once
#include <cstdint>
#include <vector>

#include "dtensor/nn/language_model.h"

namespace dtensor::nn {

struct GenerateOptions {
  int64_t tokens = 200;
  uint64_t seed = 0;
  double temperature = 1;  // 0: always take the most likely token
  std::vector<int64_t> prompt = {'\n'};
};

// Returns `tokens` new tokens that follow the prompt. Each is drawn from the
// model's distribution with the uniform number of Philox(seed, position), so
// that every mesh draws the same. The context is the last config().seq tokens.
// Collective over the model's mesh; only the logits of the last position are
// gathered. In a dry run all tokens are 0. Throws Error for an empty prompt, a
// token outside the vocabulary, or a negative temperature.
std::vector<int64_t> generate(const LanguageModel&, const GenerateOptions&);

}  // namespace dtensor::nn
