// SPDX-License-Identifier: Apache-2.0
// The architectures of language models: everything that depends on a model's
// name. architecture.cc has a row for each, and programs can add their own.
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
  bool required = true;  // if not, a missing one leaves ModelConfig's default
};

// A member of config.json for which this library knows only these values (JSON
// texts). The first is written. When a file is read, each of them is accepted
// (any value, if there are none), and so is a missing member.
struct ConfigConstant {
  enum class Use : uint8_t { kBoth, kRead, kWritten };
  const char* key;
  std::vector<const char*> values;
  Use use = Use::kBoth;
};

// Where files keep parameters whose names contain `ours`, if that is not under
// their own names: in the file, `theirs` replaces `ours`.
struct NameInFile {
  enum class As : uint8_t {
    kItself,
    // One tensor holds the rows of all parameters with the same `theirs`, one
    // after the other in the order of the table.
    kConcatenated,
    // Like kConcatenated, but the rows of each head are together: q0 k0 v0 q1
    // k1 v1 ...
    kByHeads,
    // Each expert's part is a tensor of its own; "{}" in `theirs` stands for
    // its number.
    kByExperts
  };
  const char* ours;
  const char* theirs;
  As as = As::kItself;
  bool transposed = false;  // matrices are [in, out] in the file
};

struct Architecture {
  enum class Mlp : uint8_t { kPlain, kGated, kExperts };
  // The layers with a sliding window, if the config has no layer_types: none,
  // all, every other one, or those from max_window_layers on.
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
  bool norm_of_sum = false;  // x = norm(x + attention(x)), and so on
  // ---- Names of submodules; null: there is none. "BLOCKS.N." comes before
  // those of a block ----
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
  const char* pooler = nullptr;  // of a whole text, from its first token
  // ---- Files of transformers ----
  const char* class_name;  // "LlamaForCausalLM"
  std::vector<const char*>
      model_types;  // of "model_type"; the first is written
  std::vector<ConfigKey> keys;
  std::vector<ConfigConstant> constants;
  // The config's members for rope.theta, and for the part of a head that is
  // rotated.
  const char* rope_theta = "rope_theta";
  const char* rope_part = "partial_rotary_factor";
  double rotated_part = 1;             // if the config does not say
  std::vector<NameInFile> names = {};  // the first that fits is used
  // The prefix of names in files that some files leave out.
  const char* optional_prefix = "";
  // Patterns of the names of tensors that some files have, but that are not
  // read.
  std::vector<const char*> unread = {};

  bool experts() const { return mlp == Mlp::kExperts; }
  // The matrices [hidden, ffn] of a feed-forward layer, or of an expert.
  int64_t matrices() const { return mlp == Mlp::kPlain ? 2 : 3; }
};

const std::deque<Architecture>& architectures();
// Adds a row of the program's own, for make_model(), from_pretrained() and
// save_pretrained(). Its strings must live as long as the program. Throws Error
// if a rank calls it (call it before run()); if the row lacks a name, a class
// or a type of files; or if another row has the name, or files of the same type
// and class.
void add_architecture(const Architecture&);
// Throws Error, which lists the names, if there is no such architecture.
const Architecture& architecture(std::string_view name);
// "gpt, llama, mixtral or qwen2": the names of the architectures that `which`
// accepts (null: all).
std::string architecture_names(bool (*which)(const Architecture&) = nullptr);

}  // namespace dtensor::nn
