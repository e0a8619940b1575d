// Reads and writes a model's config in the format of transformers.
#pragma once
#include <string>

#include "dtensor/nn/config.h"

namespace dtensor::nn {

// The text of config.json for the class of the model's architecture.
std::string config_text(const ModelConfig&);

// Reads a config.json. Throws Error for a model that this library does not
// have, for a member with which the model would compute something else than
// this library does (another activation, another scaling of rotary embeddings),
// and for an unknown member. Members that only matter for training,
// such as dropout, are ignored.
ModelConfig read_config(const std::string& path);

}  // namespace dtensor::nn
