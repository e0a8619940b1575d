// The architectures of language models: everything that depends on a model's
// name. A new one is a row in architecture.cc.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "dtensor/io/safetensors.h"
#include "dtensor/nn/config.h"

namespace dtensor::nn {

// A member of transformers' config.json, and the number that it stands for.
struct ConfigKey {
  const char* key;
  std::variant<int64_t ModelConfig::*, double ModelConfig::*> number;
  bool required = true;  // otherwise validate() knows a default
};

// A member of config.json whose value does not vary, as JSON texts. The first
// is written. When a file is read, all of them are accepted, and so is a
// missing member.
struct ConfigConstant {
  enum class Use : uint8_t { kBoth, kRead, kWritten };
  const char* key;
  std::vector<const char*> values;
  Use use = Use::kBoth;
};

// The place of a parameter, or of a part of it, in a file: a window of a
// tensor.
struct PlaceInFile {
  std::string name;
  Shape shape;  // of the whole tensor in the file
  SafetensorsWindow window = {};
  int64_t expert = -1;  // if >= 0, only the part of this expert
};

struct Architecture {
  enum class Mlp : uint8_t { kGelu, kSwiGLU, kExperts };

  std::string_view name;  // ModelConfig::name
  // ---- Layers ----
  bool layer_norm = false;  // RMS norm otherwise
  double norm_eps = 1e-6;   // if the config does not say
  bool rotary = true;       // learned positions otherwise
  bool grouped = true;      // whether there may be fewer kv-heads than heads
  bool bias = false;        // of attention's queries, keys and values
  bool out_bias = false;    // of attention's output
  Mlp mlp = Mlp::kSwiGLU;
  // ---- Names of submodules; those of blocks are below "BLOCKS.N." ----
  const char* embedding = "model.embed_tokens";
  const char* positions = nullptr;
  const char* blocks = "model.layers";
  const char* norm_1 = "input_layernorm";
  const char* attention = "self_attn";
  const char* norm_2 = "post_attention_layernorm";
  const char* last_norm = "model.norm";
  const char* head = "lm_head";  // null: the head is the embedding
  // ---- Tensor parallelism ----
  // Patterns of parameters beside those of attention, and the dimension that is
  // split.
  std::vector<std::pair<const char*, int>> split;
  // ---- Files of transformers ----
  const char* class_name;          // "LlamaForCausalLM"
  std::vector<const char*> types;  // of "model_type"; the first is written
  std::vector<ConfigKey> keys;
  std::vector<ConfigConstant> constants;
  // Null: parameters have their own names and shapes there.
  std::vector<PlaceInFile> (*places)(const std::string& name,
                                     const Shape& shape) = nullptr;
  // A beginning of all names that older files leave out.
  const char* optional_prefix = "";
  const char* repeated = "";  // a tensor that some files have, too

  bool experts() const { return mlp == Mlp::kExperts; }
  // The matrices [hidden, ffn] of a feed-forward layer, or of an expert.
  int64_t matrices() const { return mlp == Mlp::kGelu ? 2 : 3; }
};

std::span<const Architecture> architectures();
// Throws Error, which lists the names, if there is none.
const Architecture& architecture(std::string_view name);
// "gpt, llama, mixtral or qwen2": the names of those that `which` accepts.
std::string architecture_names(bool (*which)(const Architecture&) = nullptr);

}  // namespace dtensor::nn
