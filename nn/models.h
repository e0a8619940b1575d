// SPDX-License-Identifier: Apache-2.0
// Makes language models by name, loads and saves them, and generates texts.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dtensor/nn/language_model.h"
#include "dtensor/nn/parallel.h"
#include "dtensor/nn/sampling.h"

namespace dtensor::nn {

// Makes the model named config.name. Its parameters are in the plan's layouts,
// and their values depend only on the config and the seed. Throws Error if the
// config is not valid, or a pattern of the plan matches no parameter (a typing
// error would otherwise leave weights replicated). Every rank of the mesh calls
// it. Works in a dry run.
std::unique_ptr<LanguageModel> make_model(const ModelConfig&, const Mesh&,
                                          const ParallelPlan&,
                                          uint64_t seed = 0);
// The same with default_plan(config, mesh).
std::unique_ptr<LanguageModel> make_model(const ModelConfig&, const Mesh&,
                                          uint64_t seed = 0);

namespace internal {
// make_model() as above. If `empty`, the parameters have no values yet; see
// Scope for int8_weights.
std::unique_ptr<LanguageModel> make_model(const ModelConfig&, const Mesh&,
                                          const ParallelPlan&, uint64_t seed,
                                          bool empty,
                                          bool int8_weights = false);
}  // namespace internal

// ---- Files in the format of Hugging Face transformers ----

// Writes dir/config.json and dir/model.safetensors in the form of the model's
// class in transformers (GPT2LMHeadModel, LlamaForCausalLM, ...), which opens
// them; Architecture::names maps the parameters to the file's tensors. Makes
// the folder if it is missing. Every rank writes what it holds, box by box, and
// a value that several ranks hold is written by one of them. Nothing is
// gathered, except that a pipeline's parameters are replicated over the mesh,
// one at a time. At any time the folder holds the complete old model, no model,
// or the complete new one: old weights with another config are removed first,
// and the new weights get their name last. Collective over the model's mesh.
// Does nothing in a dry run. Throws Error with the path and the system's reason
// if writing fails.
void save_pretrained(const LanguageModel&, const std::string& dir);

struct LoadOptions {
  std::optional<DType> dtype = {};        // the config's if not set
  std::optional<ParallelPlan> plan = {};  // default_plan() if not set
  // Whether the weights of all Linear layers, and of a head that is not the
  // embedding, become int8 as they are read, with a scale for each row
  // (to_int8() in ops/contraction.h). All other parameters stay floats:
  // embeddings, norms, biases, routers and experts.
  // One parameter is converted at a time; meanwhile there are two more copies
  // of it in f32. On a GPU this saves memory, not time. Such a model can be
  // run, but not trained or saved.
  bool int8_weights = false;
};

// Loads a model of any architecture (architecture.h) from a folder of
// transformers, or of save_pretrained(): config.json, and model.safetensors or
// several files with model.safetensors.index.json. Nothing has to be converted.
// Each rank reads only the boxes that its layouts give it. A dry run needs only
// config.json, and reads the headers of the files if they are there. Collective
// over the mesh. Throws Error if the config asks for something that this
// library does not compute (pretrained_config.h), or the tensors do not match
// the model.
std::unique_ptr<LanguageModel> from_pretrained(const std::string& dir,
                                               const Mesh&,
                                               const LoadOptions& = {});

// ---- Sampling ----

struct GenerateOptions {
  int64_t tokens = 200;
  std::vector<int64_t> prompt = {'\n'};
  Sampling sampling = {};
  std::vector<int64_t> stop = {};  // tokens that end the text
  // See TextRequest::on_token in engine.h.
  std::function<bool(const DrawnToken&)> on_token = {};
  // Whether to keep the keys and values of the text (kv_cache.h), instead of
  // computing the text again for each token. Ignored if attention_layers() of
  // the model is empty, or if prompt and `tokens` together exceed config().seq.
  bool cache = true;
};

// Returns `tokens` new tokens that follow the prompt, or fewer if one of `stop`
// is among them or on_token() ends the text. Each is drawn as sampling.h says,
// with random numbers that do not depend on the mesh. The context is the last
// config().seq tokens. Collective over the model's mesh; at most the logits of
// the last position are gathered. In a dry run all tokens are 0. Throws Error
// for an encoder, an empty prompt, a token outside the vocabulary, or sampling
// that is out of range. For several texts at once, see engine.h.
std::vector<int64_t> generate(const LanguageModel&, const GenerateOptions&);

}  // namespace dtensor::nn
