// SPDX-License-Identifier: Apache-2.0
// The architectures of language models: everything that depends on a model's
// name. architecture.cc has a table of them, and programs can add their own.
#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "dtensor/nn/config.h"

namespace dtensor::nn {

// A member of transformers' config.json, and the member of ModelConfig that it
// sets.
struct ConfigKey {
  const char* key;
  std::variant<int64_t ModelConfig::*, double ModelConfig::*,
               bool ModelConfig::*, std::optional<bool> ModelConfig::*>
      number;
  bool required = true;  // false: ModelConfig's default if a file lacks it
};

// A member of config.json for which this library knows only the JSON texts
// `values`. Files are written with the first of them. Files are read if they
// have any of them (any value, if `values` is empty) or lack the member. `use`:
// whether the constant counts for reading, for writing, or for both.
struct ConfigConstant {
  enum class Use : uint8_t { kBoth, kRead, kWritten };
  const char* key;
  std::vector<const char*> values;
  Use use = Use::kBoth;
};

// Says that parameters whose names contain `ours` have other names in the files
// of transformers: there, `theirs` replaces `ours`.
struct NameInFile {
  enum class As : uint8_t {
    kItself,
    // One tensor holds the rows of all parameters with the same `theirs`, one
    // after the other in the order of Architecture::names.
    kConcatenated,
    // Like kConcatenated, but the rows of each head are together: q0 k0 v0 q1
    // k1 v1 ...
    kByHeads,
    // Each expert's part is a tensor of its own; "{}" in `theirs` stands for
    // the expert's number.
    kByExperts
  };
  const char* ours;
  const char* theirs;
  As as = As::kItself;
  bool transposed = false;  // matrices are [in, out] in the file
};

struct Architecture {
  enum class Mlp : uint8_t { kPlain, kGated, kExperts };
  // The layers that have a sliding window, if config.json has no layer_types:
  // none; all; layers 0, 2, 4 and so on; or those from number max_window_layers
  // (a member of the file) on.
  enum class Windows : uint8_t { kNone, kAll, kEven, kUpper };
  enum class Head : uint8_t {
    kNone,   // features only
    kPlain,  // one matrix
    kMasked  // BERT's: dense, gelu, norm, and a tied matrix with a bias
  };

  std::string_view name;  // ModelConfig::name
  // ---- Layers ----
  bool layer_norm = false;  // RMS norm otherwise
  bool plus_one = false;    // RMS norms multiply by 1 + weight
  double norm_eps = 1e-6;   // if the config does not say
  bool rotary = true;       // learned positions otherwise
  bool causal = true;
  bool grouped = true;    // whether there may be fewer kv-heads than heads
  bool bias = false;      // of attention's queries, keys and values
  bool out_bias = false;  // of attention's output
  HeadNorm head_norm = HeadNorm::kNone;
  Windows windows = Windows::kNone;
  Mlp mlp = Mlp::kGated;
  Act act = Act::kSilu;
  bool mlp_bias = false;
  bool scaled_embedding = false;  // embeddings are multiplied by sqrt(hidden)
  Head head_kind = Head::kPlain;
  bool tied = false;         // the default of ModelConfig::tied
  bool parallel = false;     // the default of ModelConfig::parallel
  bool norm_of_sum = false;  // x = norm(x + attention(x)); same for the MLP
  // ---- Names of submodules; null: there is none (but every model has an
  // embedding, blocks and attention). In block N, the names of norms and
  // attention follow "BLOCKS.N.", where BLOCKS is `blocks` ----
  const char* embedding = "model.embed_tokens";
  const char* positions = nullptr;
  const char* token_types = nullptr;  // all tokens are of type 0
  const char* first_norm = nullptr;
  const char* blocks = "model.layers";
  const char* norm_1 = "input_layernorm";
  const char* after_1 = nullptr;  // a norm of attention's result
  const char* attention = "self_attn";
  const char* norm_2 = "post_attention_layernorm";
  const char* after_2 = nullptr;  // a norm of the MLP's result
  const char* last_norm = "model.norm";
  const char* head = "lm_head";
  const char* pooler = nullptr;  // see Decoder::pooled()
  // ---- Files of transformers ----
  const char* class_name;  // "LlamaForCausalLM"
  std::vector<const char*>
      model_types;  // values of "model_type" in files; the first is written
  std::vector<ConfigKey> keys;
  std::vector<ConfigConstant> constants;
  const char* rope_theta = "rope_theta";  // rope.theta's name in config.json
  // The name in config.json of the share of a head's numbers that is rotated.
  const char* rope_part = "partial_rotary_factor";
  double rotated_part = 1;  // that share if the config lacks it
  // The first one whose `ours` is in a parameter's name is used.
  std::vector<NameInFile> names = {};
  // A prefix of the names in files. Some files leave it out.
  const char* optional_prefix = "";
  // Patterns of the names of tensors that some files have, but that are not
  // read.
  std::vector<const char*> unread = {};

  bool experts() const { return mlp == Mlp::kExperts; }
  // The number of matrices of a feed-forward layer, or of each expert.
  int64_t matrices() const { return mlp == Mlp::kPlain ? 2 : 3; }
};

const std::deque<Architecture>& architectures();
// Adds an architecture of the program's own, for make_model(),
// from_pretrained() and save_pretrained(). Its strings must live as long as the
// program. Throws Error inside run(); if `name`, `class_name` or `model_types`
// is not set; or if another architecture has the same name, or the same class
// name and one of the same model types.
void add_architecture(const Architecture&);
// Throws Error, which lists the names, if there is no such architecture.
const Architecture& architecture(std::string_view name);
// "gpt, llama, mixtral or qwen2": the names of the architectures that `which`
// accepts (null: all).
std::string architecture_names(bool (*which)(const Architecture&) = nullptr);

}  // namespace dtensor::nn
