// SPDX-License-Identifier: Apache-2.0
// Reads and writes a model's config in the format of transformers.
#pragma once
#include <string>
#include <vector>

#include "dtensor/nn/config.h"
#include "dtensor/nn/sampling.h"

namespace dtensor::nn {

// The text of config.json for the class of the model's architecture.
std::string config_text(const ModelConfig&);

// Reads a config.json. Throws Error for a model that this library does not
// have, for a member with which transformers would compute something that this
// library does not (another activation, another scaling of rotary embeddings),
// and for an unknown member. Members that only matter for training, such as
// dropout, are ignored.
ModelConfig read_config(const std::string& path);

// How texts are to be continued, according to the files of a model.
struct GenerationConfig {
  // With temperature 0 unless the file says do_sample.
  Sampling sampling = {.temperature = 0};
  std::vector<int64_t> stop = {};  // tokens that end a text
};
// Reads dir/generation_config.json, if there is one. If that file or its
// "eos_token_id" is missing, `stop` is that of config.json. Other members of
// transformers are ignored. Throws Error if a member that it reads has the
// wrong type; check_sampling() checks the ranges.
GenerationConfig read_generation_config(const std::string& dir);

}  // namespace dtensor::nn
