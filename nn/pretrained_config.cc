// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/pretrained_config.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "dtensor/nn/architecture.h"
#include "dtensor/nn/parallel.h"
#include "dtensor/placement/error.h"

namespace dtensor::nn {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::string torch_name(DType t) {
  if (t == DType::kF64) return "float64";
  if (t == DType::kF16) return "float16";
  return t == DType::kBF16 ? "bfloat16" : "float32";
}

// A value as errors show it: in ASCII, cut off if it is long.
std::string shown(const json& value) {
  const std::string text = value.dump(-1, ' ', true);
  return text.size() <= 200 ? text : text.substr(0, 200) + "...";
}

// The config with all defaults filled in.
ModelConfig resolved(ModelConfig c) {
  c.kv_heads = c.kv();
  c.head_size = c.head_dim();
  if (!c.query_scalar) c.query_scalar = c.head_size;
  c.tied = c.is_tied();
  c.parallel = c.is_parallel();
  c.ffn = c.ffn_size();
  c.norm_eps = c.eps();
  c.experts = c.expert_count();
  c.top_k = c.chosen_experts();
  return c;
}

// The members of a config, with a record of those that were read.
class Members {
 public:
  Members(std::string path, json all)
      : path_(std::move(path)), all_(std::move(all)) {}

  // Returns a number or a bool. If the member is missing or null, returns
  // `otherwise`, or throws Error if that is not set.
  template <class T>
  T number(const char* name, std::optional<T> otherwise = std::nullopt) {
    known_.insert(name);
    if (!has(name)) {
      DT_CHECK(otherwise.has_value(), "load",
               "{} has no value \"{}\"; add it, or download the file again",
               path_, name);
      return *otherwise;
    }
    const json& value = all_[name];
    if constexpr (std::is_same_v<T, bool>) {
      if (!value.is_boolean()) refuse(name, "true or false");
    } else {
      const bool fits = std::is_floating_point_v<T> ? value.is_number()
                                                    : value.is_number_integer();
      if (!fits)
        refuse(name, std::is_floating_point_v<T> ? "a number" : "an integer");
    }
    return value.get<T>();
  }
  std::string text(const char* name) {
    known_.insert(name);
    DT_CHECK(all_.contains(name) && all_[name].is_string(), "load",
             "{} has no string \"{}\"; add it, or download the file again",
             path_, name);
    return all_[name].get<std::string>();
  }
  // Refuses the member if it has none of these values. An empty list allows any
  // value, and the member may be missing.
  void only(const char* name, std::vector<json> values) {
    known_.insert(name);
    if (!all_.contains(name) || values.empty()) return;
    std::string list;
    for (const json& v : values) {
      if (all_[name] == v) return;
      list += (list.empty() ? "" : " or ") + v.dump();
    }
    refuse(name, list);
  }
  bool has(const char* name) const {
    return all_.contains(name) && !all_[name].is_null();
  }
  const json& at(const char* name) {
    known_.insert(name);
    return all_[name];
  }
  const std::string& path() const { return path_; }
  [[noreturn]] void refuse(const char* name, const std::string& want) const {
    fail("load",
         "{} says \"{}\": {}, but this library reads only {} there in such a "
         "file; load another model, or correct the file",
         path_, name, shown(all_[name]), want);
  }
  // Refuses members that were not read, since they could change the results.
  void finish() const {
    // These do not change results, or are read elsewhere: names, types, token
    // ids, and members for training or for other heads only.
    static constexpr std::string_view kNoNumbers[] = {
        "_name_or_path",
        "architectures",
        "model_type",
        "dtype",
        "torch_dtype",
        "*_token_id",
        "initializer_range",
        "use_cache",
        "transformers_version",
        "*_pdrop",
        "*dropout",
        "*dropout_prob",
        "original_max_position_embeddings",
        "summary_*",
        "task_specific_params",
        "n_ctx",
        "pretraining_tp",
        "output_*",
        "return_dict",
        "chunk_size_feed_forward",
        "is_encoder_decoder",
        "gradient_checkpointing",
        "problem_type",
        "id2label",
        "label2id",
        "auto_map"};
    for (const auto& [name, value] : all_.items()) {
      if (known_.contains(name)) continue;
      bool harmless = false;
      for (std::string_view pattern : kNoNumbers)
        harmless |= matches(pattern, name);
      DT_CHECK(harmless, "load",
               "{} says {}: {}, which this library does not know in such a "
               "file; remove it if it does not change what the model computes",
               path_, shown(name), shown(value));
    }
  }

 private:
  std::string path_;
  json all_;
  std::set<std::string, std::less<>> known_;
};

// Reads the frequencies of rotary embeddings. Newer files have all numbers in
// rope_parameters. Older ones have those of the scaling in rope_scaling, and
// the theta and the rotated part in members of their own.
void read_rotary(Members& m, const Architecture& a, ModelConfig& c) {
  double part = a.rotated_part;
  for (const char* name : {"rope_theta", a.rope_theta})
    c.rope.theta = m.number<double>(name, c.rope.theta);
  for (const char* name : {"partial_rotary_factor", a.rope_part})
    part = m.number<double>(name, part);
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    if (!m.has(name)) continue;
    const json& rope = m.at(name);
    if (!rope.is_object()) m.refuse(name, "an object");
    const auto number = [&](const char* key, double otherwise) {
      const auto at = rope.find(key);
      if (at == rope.end() || at->is_null()) return otherwise;
      if (!at->is_number()) m.refuse(name, fmt::format("a number in {}", key));
      return at->get<double>();
    };
    c.rope.theta = number("rope_theta", c.rope.theta);
    part = number("partial_rotary_factor", part);
    json type = "default";
    for (const char* key : {"type", "rope_type"})
      if (rope.contains(key)) type = rope[key];
    if (type == "default") continue;
    if (type != "llama3" && type != "linear")
      m.refuse(name, "the rope_type default, linear or llama3");
    c.rope.factor = number("factor", 0);
    if (c.rope.factor <= 0) m.refuse(name, "a positive factor");
    if (type == "linear") continue;
    c.rope.low_freq_factor = number("low_freq_factor", 0);
    c.rope.high_freq_factor = number("high_freq_factor", 0);
    const double positions = number("original_max_position_embeddings", 0);
    if (c.rope.high_freq_factor <= c.rope.low_freq_factor || positions < 1 ||
        positions > 1e12)
      m.refuse(name,
               "low_freq_factor below high_freq_factor, and an "
               "original_max_position_embeddings from 1 to 1e12");
    c.rope.original_positions = static_cast<int64_t>(positions);
  }
  // Below, this is rounded down, as in transformers. It must be at least 1,
  // because Rope::dims = 0 means all numbers.
  const double dims = part * static_cast<double>(c.head_dim());
  DT_CHECK(c.head_dim() > 0, "load",
           "{} has the head size {}; it must be positive", m.path(),
           c.head_dim());
  DT_CHECK(part <= 1 && dims >= 1, "load",
           "{} rotates the share {} of a head, which is {} of its {} numbers; "
           "write a {} that makes an even number of them, 2 to {}",
           m.path(), part, dims, c.head_dim(),
           std::string_view(a.rope_part) == "partial_rotary_factor"
               ? std::string(a.rope_part)
               : fmt::format("{} or partial_rotary_factor", a.rope_part),
           c.head_dim());
  c.rope.dims = part == 1 ? 0 : static_cast<int64_t>(dims);
}

void read_windows(Members& m, const Architecture& a, ModelConfig& c) {
  using enum Architecture::Windows;
  c.window = m.number<int64_t>("sliding_window", int64_t{0});
  // Qwen's files have a window that is used only if use_sliding_window is true.
  if (!m.number<bool>("use_sliding_window", a.windows != kUpper)) c.window = 0;
  const auto from = m.number<int64_t>("max_window_layers", int64_t{28});
  if (a.windows == kNone) {
    if (c.window && c.window < c.seq)
      m.refuse("sliding_window", fmt::format("null or at least {}", c.seq));
    c.window = 0;
  }
  if (m.has("layer_types")) {
    const json& types = m.at("layer_types");
    if (!types.is_array() || std::ssize(types) != c.layers)
      m.refuse("layer_types",
               fmt::format("a list with a type for each layer ({})", c.layers));
    for (const json& type : types) {
      const bool slides = type == "sliding_attention";
      if (!slides && type != "full_attention")
        m.refuse("layer_types", "\"full_attention\" or \"sliding_attention\"");
      if (slides && !c.window)
        m.refuse("layer_types", "\"full_attention\" where there is no window");
      c.windowed.push_back(slides);
    }
  } else if (c.window && (a.windows == kEven || a.windows == kUpper)) {
    // validate() has not checked the number of layers yet.
    DT_CHECK(c.layers <= 100'000, "load",
             "{} has {} layers; there may be at most 100000", m.path(),
             c.layers);
    for (int64_t i = 0; i < c.layers; ++i)
      c.windowed.push_back(a.windows == kEven ? i % 2 == 0 : i >= from);
  }
  if (!c.window) c.windowed.clear();
}

void write_windows(const Architecture& a, const ModelConfig& c,
                   ordered_json& json) {
  using enum Architecture::Windows;
  if (a.windows == kNone) return;
  json["sliding_window"] = nullptr;
  if (c.window) json["sliding_window"] = c.window;
  if (a.windows == kAll && c.windowed.empty()) return;
  if (a.windows == kUpper) json["use_sliding_window"] = c.window > 0;
  for (int64_t i = 0; i < c.layers; ++i)
    json["layer_types"].push_back(c.window_of(i) ? "sliding_attention"
                                                 : "full_attention");
}

// Newer versions of transformers read rope_parameters; older ones read the
// other members that this writes.
void write_rotary(const Architecture& a, const ModelConfig& c,
                  ordered_json& json) {
  ordered_json rope = {{"rope_type", "default"}};
  if (c.rope.factor) {
    rope["rope_type"] = c.rope.original_positions ? "llama3" : "linear";
    rope["factor"] = c.rope.factor;
    if (c.rope.original_positions) {
      rope["low_freq_factor"] = c.rope.low_freq_factor;
      rope["high_freq_factor"] = c.rope.high_freq_factor;
      rope["original_max_position_embeddings"] = c.rope.original_positions;
    }
    json["rope_scaling"] = rope;
  }
  const double part = c.rope.dims ? static_cast<double>(c.rope.dims) /
                                        static_cast<double>(c.head_dim())
                                  : 1;
  // An architecture with another name for this member has another default, too.
  if (part != 1 || std::string_view(a.rope_part) != "partial_rotary_factor") {
    json[a.rope_part] = part;
    rope["partial_rotary_factor"] = part;
  }
  json[a.rope_theta] = c.rope.theta;
  rope["rope_theta"] = c.rope.theta;
  json["rope_parameters"] = rope;
}

// transformers adds the router's loss only if it returns the router's logits.
void read_router(Members& m, ModelConfig& c) {
  const double coefficient = m.number<double>("router_aux_loss_coef", 0.001);
  if (m.has("output_router_logits") && m.at("output_router_logits") == true)
    c.router_loss = coefficient;
}

ModelConfig read(Members& m, const Architecture& a) {
  ModelConfig c{.name = std::string(a.name)};
  for (const ConfigKey& k : a.keys)
    std::visit(
        [&]<class T>(T ModelConfig::*number) {
          if constexpr (std::is_same_v<T, std::optional<bool>>) {
            if (m.has(k.key)) c.*number = m.number<bool>(k.key);
            (void)m.number<bool>(k.key, false);
            return;
          } else {
            if (!k.required) {
              c.*number = m.number<T>(k.key, c.*number);
              return;
            }
            c.*number = m.number<T>(k.key);
            // In ModelConfig, 0 would mean a default.
            DT_CHECK(c.*number > 0, "load", "{} has {} {}; it must be positive",
                     m.path(), k.key, c.*number);
          }
        },
        k.number);
  for (const ConfigConstant& k : a.constants) {
    if (k.use == ConfigConstant::Use::kWritten) continue;
    std::vector<json> values;
    for (const char* v : k.values) values.push_back(json::parse(v));
    m.only(k.key, values);
  }
  DT_CHECK(c.head_size || c.hidden % c.heads == 0, "load",
           "{} has {} heads for a width of {}; the width must be a multiple of "
           "the heads",
           m.path(), c.heads, c.hidden);
  if (a.rotary) {
    read_rotary(m, a, c);
    read_windows(m, a, c);
  }
  if (a.experts()) read_router(m, c);
  return c;
}

}  // namespace

std::string config_text(const ModelConfig& config) {
  const Architecture& a = architecture(config.name);
  const ModelConfig c = resolved(config);
  ordered_json json{
      {"architectures", ordered_json::array({std::string(a.class_name)})},
      {"model_type", a.model_types[0]}};
  for (const ConfigKey& k : a.keys)
    std::visit(
        [&]<class T>(T ModelConfig::*number) {
          if constexpr (std::is_same_v<T, std::optional<bool>>)
            json[k.key] = (c.*number).value();
          else
            json[k.key] = c.*number;
        },
        k.number);
  if (a.rotary) {
    write_rotary(a, c, json);
    write_windows(a, c, json);
  }
  if (a.experts()) {
    json["output_router_logits"] = c.router_loss > 0;
    json["router_aux_loss_coef"] = c.router_loss;
  }
  for (const ConfigConstant& k : a.constants)
    if (k.use != ConfigConstant::Use::kRead)
      json[k.key] = ordered_json::parse(k.values[0]);
  // Writes null if there is no such token: for a missing member, transformers
  // takes the default of the class.
  const auto id = [&](const char* name, std::optional<int64_t> token) {
    json[name] = nullptr;
    if (token) json[name] = *token;
  };
  id("bos_token_id", c.bos);
  id("pad_token_id", c.pad);
  id("eos_token_id", {});
  if (c.eos.size() == 1) json["eos_token_id"] = c.eos[0];
  if (c.eos.size() > 1) json["eos_token_id"] = c.eos;
  json["use_cache"] = true;
  json["dtype"] = torch_name(config.dtype);
  return json.dump(2) + "\n";
}

namespace {

json read_object(const std::string& path) {
  std::error_code reason;
  DT_CHECK(std::filesystem::is_regular_file(path, reason), "load",
           "{} is not a regular file{}; name the folder of a model that has it",
           path, reason ? ": " + reason.message() : "");
  std::ifstream file(path, std::ios::binary);
  DT_CHECK(file.good(), "load",
           "{} cannot be opened: {}; name a file that you may read", path,
           std::strerror(errno));
  json all = json::parse(file, nullptr, false);
  DT_CHECK(all.is_object(), "load",
           "{} is not a JSON object; correct it, or download it again", path);
  return all;
}

// The tokens of "eos_token_id": none, one or a list.
std::vector<int64_t> end_tokens(const json& all, const std::string& path) {
  std::vector<int64_t> ids;
  if (!all.contains("eos_token_id") || all["eos_token_id"].is_null())
    return ids;
  const json& eos = all["eos_token_id"];
  for (const json& id : eos.is_array() ? eos : json::array({eos})) {
    DT_CHECK(id.is_number_integer(), "load",
             "{} has \"eos_token_id\": {}; write a token id, or a list of ids",
             path, shown(eos));
    ids.push_back(id.get<int64_t>());
  }
  return ids;
}

// Returns the architecture with the config's model_type. If several have that
// type, returns the one whose class_name is the first in the config's list
// "architectures", or else the first that has the type.
const Architecture& architecture_of(Members& members) {
  const std::string type = members.text("model_type");
  std::string class_name;
  if (members.has("architectures"))
    if (const json& list = members.at("architectures");
        list.is_array() && !list.empty() && list[0].is_string())
      class_name = list[0];
  const Architecture* found = nullptr;
  std::string known;
  for (const Architecture& a : architectures())
    for (const std::string_view t : a.model_types) {
      if (t == type && (!found || class_name == a.class_name)) found = &a;
      if (known.find(t) == known.npos)
        known += fmt::format("{}{}", known.empty() ? "" : ", ", t);
    }
  DT_CHECK(found, "load",
           "{} is the config of a {}, but this library has only {}; add the "
           "architecture in your program, as examples/12_own_architecture.cc "
           "does",
           members.path(), shown(type), known);
  return *found;
}

}  // namespace

ModelConfig read_config(const std::string& path) {
  const json all = read_object(path);
  Members members(path, all);
  const Architecture& found = architecture_of(members);
  ModelConfig config = read(members, found);
  config.eos = end_tokens(all, path);
  for (const auto& [name, token] :
       {std::pair("bos_token_id", &config.bos), {"pad_token_id", &config.pad}})
    if (members.has(name)) *token = members.number<int64_t>(name);
  members.finish();
  std::string dtype = "float32";
  for (const char* name : {"torch_dtype", "dtype"})
    if (all.contains(name) && all[name].is_string()) dtype = all[name];
  config.dtype = dtype == "float64"    ? DType::kF64
                 : dtype == "bfloat16" ? DType::kBF16
                 : dtype == "float16"  ? DType::kF16
                                       : DType::kF32;
  config.validate();
  return config;
}

GenerationConfig read_generation_config(const std::string& dir) {
  GenerationConfig c;
  std::error_code ignored;
  for (const char* name : {"/config.json", "/generation_config.json"}) {
    const std::string path = dir + name;
    if (!std::filesystem::exists(path, ignored)) continue;
    const json all = read_object(path);
    if (const auto eos = end_tokens(all, path); !eos.empty()) c.stop = eos;
  }
  const std::string path = dir + "/generation_config.json";
  if (!std::filesystem::exists(path, ignored)) return c;
  Members m(path, read_object(path));
  Sampling& s = c.sampling;
  s.repetition_penalty =
      m.number<double>("repetition_penalty", s.repetition_penalty);
  if (!m.number<bool>("do_sample", false)) return c;
  s.temperature = m.number<double>("temperature", 1.0);
  s.top_k = m.number<int64_t>("top_k", int64_t{50});  // as in transformers
  s.top_p = m.number<double>("top_p", 1.0);
  s.min_p = m.number<double>("min_p", 0.0);
  return c;
}

}  // namespace dtensor::nn
