// Models in the form that Hugging Face transformers reads.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "dtensor/nn/language_model.h"
#include "dtensor/nn/parallel.h"

namespace dtensor::nn {

// Writes dir/config.json and dir/model.safetensors (dir is made where it is
// missing) so that AutoModelForCausalLM opens them: as GPT2LMHeadModel (whose
// Conv1D weights are transposed, and whose c_attn is q|k|v), LlamaForCausalLM
// or MixtralForCausalLM (whose experts have a tensor each for each of their
// matrices). Every rank writes what it holds, box by box; nothing is
// gathered, and a value that several ranks hold is written by one. The folder
// holds the old model, none, or the new one, complete, at any time: the weights
// appear under their name last, and old weights of another config go first.
// Collective. Does nothing in a dry run. Throws Error with the path and the
// system's reason when the disk says no.
void save_pretrained(const LanguageModel&, const std::string& dir);

struct LoadOptions {
  std::optional<DType> dtype = {};        // else the config's
  std::optional<ParallelPlan> plan = {};  // else default_plan()
};

// The model that save_pretrained(), or transformers, wrote to `dir`: a gpt2, a
// llama, a mixtral, or a mistral that sees all positions. Each rank reads the
// boxes that its layouts give it, and nothing else. Collective. Throws Error
// when the config asks for something that this library does not compute (see
// pretrained_config.h), or the tensors are not those of the model.
std::unique_ptr<LanguageModel> load_pretrained(const std::string& dir,
                                               const Mesh&,
                                               const LoadOptions& = {});

}  // namespace dtensor::nn
