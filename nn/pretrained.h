// Loads and saves models in the format of Hugging Face transformers.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "dtensor/nn/language_model.h"
#include "dtensor/nn/parallel.h"

namespace dtensor::nn {

// Writes dir/config.json and dir/model.safetensors so that AutoModelForCausalLM
// opens them as GPT2LMHeadModel (whose Conv1D weights are transposed, and whose
// c_attn is q|k|v), LlamaForCausalLM or MixtralForCausalLM (which has separate
// tensors for each expert). Makes the folder if it is missing. Every rank
// writes what it holds, box by box; nothing is gathered, and a value that
// several ranks hold is written by one of them. At any time the folder holds
// the complete old model, no model, or the complete new one: old weights with
// another config are removed first, and the new weights get their name last.
// Collective over the model's mesh. Does nothing in a dry run. Throws Error
// with the path and the system's reason if writing fails.
void save_pretrained(const LanguageModel&, const std::string& dir);

struct LoadOptions {
  std::optional<DType> dtype = {};        // the config's if not set
  std::optional<ParallelPlan> plan = {};  // default_plan() if not set
};

// Loads the model that save_pretrained(), or transformers, wrote to `dir`: a
// gpt2, llama, mixtral, or a mistral without a sliding window. Each rank reads
// only the boxes that its layouts give it. Collective over the mesh. Throws
// Error if the config asks for something that this library does not compute
// (pretrained_config.h), or the tensors do not match the model.
std::unique_ptr<LanguageModel> load_pretrained(const std::string& dir,
                                               const Mesh&,
                                               const LoadOptions& = {});

}  // namespace dtensor::nn
