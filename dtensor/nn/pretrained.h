// Models in the form that Hugging Face transformers reads.
#pragma once
#include <string>

#include "dtensor/nn/language_model.h"

namespace dtensor::nn {

// Writes dir/config.json and dir/model.safetensors (dir is made where it is
// missing) so that AutoModelForCausalLM opens them: as GPT2LMHeadModel (whose
// Conv1D weights are transposed, and whose c_attn is q|k|v) or
// LlamaForCausalLM. Every rank writes what it holds, box by box; nothing is
// gathered, and a value that several ranks hold is written by one. Files appear
// under their names when they are complete. Collective. Does nothing in a dry
// run. Throws Error with the path and the system's reason when the disk says
// no.
void save_pretrained(const LanguageModel&, const std::string& dir);

}  // namespace dtensor::nn
