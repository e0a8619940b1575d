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
// have, for a member with which the model would compute something else than
// this library does (another activation, another scaling of rotary embeddings),
// and for an unknown member. Members that only matter for training,
// such as dropout, are ignored.
ModelConfig read_config(const std::string& path);

// How the files of a model want texts to be continued.
struct GenerationConfig {
  // With temperature 0 unless the file says do_sample.
  Sampling sampling = {.temperature = 0};
  std::vector<int64_t> stop = {};  // tokens that end a text
};
// Reads dir/generation_config.json, if there is one. Without "eos_token_id",
// the one of config.json counts. Other members of transformers are ignored.
// Throws Error for a member of the wrong type; check_sampling() checks the
// ranges.
GenerationConfig read_generation_config(const std::string& dir);

}  // namespace dtensor::nn
