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
  // Declares --tokens, whose help is `tokens_help`, --stop, --ignore-eos, and a
  // flag for each member of nn::Sampling but logit_bias.
  void add_to(Program&, std::string_view tokens_help, int64_t fewest);
  // Throws Error for values that the flags themselves accept.
  void check() const;
  // A request with what the flags say. For those that are not given, the
  // defaults count.
  nn::TextRequest request(const nn::GenerationConfig& defaults) const;

  int64_t tokens;
  std::vector<std::string> stop = {};  // strings

 private:
  // Negative: the defaults count.
  double temperature_ = -1, top_p_ = -1, min_p_ = -1, repetition_penalty_ = -1,
         presence_penalty_ = 0, frequency_penalty_ = 0;
  int64_t top_k_ = -1, seed_ = 0;
  bool ignore_eos_ = false;
};

}  // namespace dtensor::examples
