// SPDX-License-Identifier: Apache-2.0
#include "programs/text_flags.h"

#include <algorithm>

#include "dtensor/nn/sampling.h"
#include "dtensor/placement/error.h"

namespace dtensor::examples {

void TextFlags::add_to(Program& program, std::string_view tokens_help,
                       int64_t fewest) {
  program.add("--tokens", &tokens, tokens_help, fewest);
  program.add("--stop", &stop, "the text ends before this text");
  program.add("--temperature", &temperature_,
              "divides the logits; 0: always the likeliest token");
  program.add("--top-k", &top_k_, "draw from the k likeliest tokens; 0: all");
  program.add("--top-p", &top_p_,
              "draw from the likeliest tokens whose probabilities sum to this");
  program.add("--min-p", &min_p_,
              "draw from tokens with at least this share of the likeliest's "
              "probability");
  program.add("--repetition-penalty", &repetition_penalty_,
              "divides the positive logits of tokens that the text has, and "
              "multiplies the others");
  program.add("--presence-penalty", &presence_penalty_,
              "subtracted from the logits of tokens that were generated", -1e6);
  program.add("--frequency-penalty", &frequency_penalty_,
              "the same, for each time", -1e6);
  program.add("--seed", &seed_, "the seed of the draws");
  program.add("--ignore-eos", &ignore_eos_,
              "go on after a token that ends the text");
}

void TextFlags::check() const {
  DT_CHECK(std::find(stop.begin(), stop.end(), "") == stop.end(), "--stop",
           "it is empty; write a text, or leave it out");
  nn::check_sampling(request({}).sampling, 0);
}

nn::TextRequest TextFlags::request(const nn::GenerationConfig& defaults) const {
  nn::TextRequest r{.tokens = tokens, .sampling = defaults.sampling};
  if (!ignore_eos_) r.stop = defaults.stop;
  const auto set = [](auto& to, auto value) {
    if (value >= 0) to = value;
  };
  nn::Sampling& s = r.sampling;
  set(s.temperature, temperature_);
  set(s.top_k, top_k_);
  set(s.top_p, top_p_);
  set(s.min_p, min_p_);
  set(s.repetition_penalty, repetition_penalty_);
  s.presence_penalty = presence_penalty_;
  s.frequency_penalty = frequency_penalty_;
  s.seed = static_cast<uint64_t>(seed_);
  return r;
}

}  // namespace dtensor::examples
