#include "dtensor/nn/pretrained_config.h"

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

// The config with all defaults filled in.
ModelConfig resolved(ModelConfig c) {
  c.kv_heads = c.kv();
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

  // A number. Without `otherwise` the member must be present.
  template <class T>
  T number(const char* name, std::optional<T> otherwise = std::nullopt) {
    known_.insert(name);
    if (!all_.contains(name) || all_[name].is_null()) {
      DT_CHECK(otherwise.has_value(), "load", "{} has no \"{}\"", path_, name);
      return *otherwise;
    }
    const json& value = all_[name];
    const bool fits = std::is_floating_point_v<T> ? value.is_number()
                                                  : value.is_number_integer();
    if (!fits) refuse(name, "a number");
    return value.get<T>();
  }
  std::string text(const char* name) {
    known_.insert(name);
    DT_CHECK(all_.contains(name) && all_[name].is_string(), "load",
             "{} has no string \"{}\"", path_, name);
    return all_[name].get<std::string>();
  }
  // Requires one of these values; a missing member means the first.
  void only(const char* name, std::vector<json> values) {
    known_.insert(name);
    if (!all_.contains(name)) return;
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
         "{} says \"{}\": {}, but this library's model has {} there; its "
         "results would differ",
         path_, name, all_[name].dump(), want);
  }
  // Refuses members that were not read, since they could change the results.
  void finish() const {
    // Names, token ids, and members for training or for other heads only.
    static constexpr std::string_view kNoNumbers[] = {"_name_or_path",
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
                                                      "summary_*",
                                                      "task_specific_params",
                                                      "n_ctx",
                                                      "max_window_layers",
                                                      "pretraining_tp",
                                                      "output_*",
                                                      "return_dict",
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
               "{} says \"{}\": {}, which this library does not know; remove "
               "it if it does not change what the model computes",
               path_, name, value.dump());
    }
  }

 private:
  std::string path_;
  json all_;
  std::set<std::string, std::less<>> known_;
};

void read_rotary(Members& m, ModelConfig& c) {
  m.only("head_dim", {c.hidden / c.heads, nullptr});
  c.rope_theta = m.number<double>("rope_theta", 10000.0);
  if (m.has("rope_parameters")) {
    const json& rope = m.at("rope_parameters");
    if (!rope.is_object() || rope.value("rope_type", "default") != "default" ||
        rope.value("partial_rotary_factor", 1.0) != 1.0)
      m.refuse("rope_parameters", "{\"rope_type\": \"default\"}");
    c.rope_theta = rope.value("rope_theta", c.rope_theta);
  }
  const auto window = m.number<int64_t>("sliding_window", c.seq);
  const bool slides =
      !m.has("use_sliding_window") || m.at("use_sliding_window") == true;
  if (slides && window < c.seq) m.refuse("sliding_window", "null");
  if (m.has("layer_types"))
    for (const json& type : m.at("layer_types"))
      if (type != "full_attention")
        m.refuse("layer_types", "\"full_attention\" everywhere");
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
          if (!k.required) {
            c.*number = m.number<T>(k.key, c.*number);
            return;
          }
          c.*number = m.number<T>(k.key);
          // 0 would stand for a default.
          DT_CHECK(c.*number > 0, "load", "{} has {} {}; it must be positive",
                   m.path(), k.key, c.*number);
        },
        k.number);
  for (const ConfigConstant& k : a.constants) {
    if (k.use == ConfigConstant::Use::kWritten) continue;
    std::vector<json> values;
    for (const char* v : k.values) values.push_back(json::parse(v));
    m.only(k.key, values);
  }
  if (a.rotary) read_rotary(m, c);
  if (a.experts()) read_router(m, c);
  return c;
}

}  // namespace

std::string config_text(const ModelConfig& config) {
  const Architecture& a = architecture(config.name);
  const ModelConfig c = resolved(config);
  ordered_json json{
      {"architectures", ordered_json::array({std::string(a.class_name)})},
      {"model_type", a.types[0]}};
  for (const ConfigKey& k : a.keys)
    std::visit([&](auto number) { json[k.key] = c.*number; }, k.number);
  if (a.rotary) {
    json["head_dim"] = c.head_dim();
    // Older versions of transformers read rope_theta, newer ones
    // rope_parameters.
    json["rope_theta"] = c.rope_theta;
    json["rope_parameters"] = {{"rope_theta", c.rope_theta},
                               {"rope_type", "default"}};
  }
  if (a.experts()) {
    json["output_router_logits"] = c.router_loss > 0;
    json["router_aux_loss_coef"] = c.router_loss;
  }
  for (const ConfigConstant& k : a.constants)
    if (k.use != ConfigConstant::Use::kRead)
      json[k.key] = ordered_json::parse(k.values[0]);
  json["bos_token_id"] = nullptr;
  json["eos_token_id"] = nullptr;
  json["use_cache"] = true;
  json["dtype"] = torch_name(config.dtype);
  return json.dump(2) + "\n";
}

ModelConfig read_config(const std::string& path) {
  std::error_code reason;
  DT_CHECK(std::filesystem::is_regular_file(path, reason), "load",
           "{} is not a regular file{}", path,
           reason ? ": " + reason.message() : "");
  std::ifstream file(path, std::ios::binary);
  DT_CHECK(file.good(), "load", "{} cannot be opened", path);
  json all = json::parse(file, nullptr, false);
  DT_CHECK(all.is_object(), "load", "{} is not a JSON object", path);
  Members members(path, all);
  const std::string type = members.text("model_type");
  const Architecture* found = nullptr;
  std::string known;
  for (const Architecture& a : architectures())
    for (const std::string_view t : a.types) {
      if (t == type) found = &a;
      known += fmt::format("{}{}", known.empty() ? "" : ", ", t);
    }
  DT_CHECK(found, "load",
           "{} is the config of a {}, but this library has only {} (a mistral "
           "without a sliding window)",
           path, type, known);
  ModelConfig config = read(members, *found);
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

}  // namespace dtensor::nn
