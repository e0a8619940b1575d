// Sampling from a language model.
#pragma once
#include <cstdint>
#include <vector>

#include "dtensor/nn/language_model.h"

namespace dtensor::nn {

struct GenerateOptions {
  int64_t tokens = 200;
  uint64_t seed = 0;
  double temperature = 1;  // 0: the likeliest token
  std::vector<int64_t> prompt = {'\n'};
};

// The tokens after the prompt; each is drawn from the model's distribution by a
// uniform number of Philox(seed, position), so that every mesh draws the same.
// The context is the last config().seq tokens. Collective; only one position's
// logits are gathered. In a dry run the tokens are 0.
std::vector<int64_t> generate(const LanguageModel&, const GenerateOptions&);

}  // namespace dtensor::nn
