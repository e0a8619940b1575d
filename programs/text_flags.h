// SPDX-License-Identifier: Apache-2.0
// The flags of programs that continue texts: how tokens are drawn, and when a
// text ends.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "dtensor/nn/engine.h"
#include "dtensor/nn/pretrained_config.h"
#include "dtensor/program/program.h"

namespace dtensor::examples {

class TextFlags {
 public:
  explicit TextFlags(int64_t tokens) : tokens(tokens) {}
  // Declares --tokens, with the help text `tokens_help` and the least value
  // `fewest`; --stop, --ignore-eos, and a flag for each member of nn::Sampling
  // except logit_bias.
  void add_to(Program&, std::string_view tokens_help, int64_t fewest);
  // Throws Error for values that Program accepts, but that are out of range.
  void check() const;
  // Makes a request without a prompt from the flags. In place of --temperature,
  // --top-k, --top-p, --min-p and --repetition-penalty that are not given, it
  // has the values of `defaults`. The tokens that end a text also come from
  // `defaults`, unless --ignore-eos is given.
  nn::TextRequest request(const nn::GenerationConfig& defaults) const;

  int64_t tokens;
  std::vector<std::string> stop = {};  // the text ends before one of these

 private:
  // An initial -1 means that the flag was not given.
  double temperature_ = -1, top_p_ = -1, min_p_ = -1, repetition_penalty_ = -1,
         presence_penalty_ = 0, frequency_penalty_ = 0;
  int64_t top_k_ = -1, seed_ = 0;
  bool ignore_eos_ = false;
};

}  // namespace dtensor::examples
