// A model's config as transformers writes it.
#pragma once
#include <string>

#include "dtensor/nn/config.h"

namespace dtensor::nn {

// config.json: of a GPT2LMHeadModel, LlamaForCausalLM or MixtralForCausalLM.
std::string config_text(const ModelConfig&);

// The config in that file. Throws Error for a model that this library does not
// have, and for a member that changes what the model computes (an activation, a
// scaled rotary embedding, a sliding window, one that is not known) to
// something else than this library does. What is for training alone, as
// dropout, is not read.
ModelConfig read_config(const std::string& path);

}  // namespace dtensor::nn
