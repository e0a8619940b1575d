#include "dtensor/nn/pretrained_config.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

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

ordered_json gpt2_config(const ModelConfig& c) {
  return {{"architectures", ordered_json::array({"GPT2LMHeadModel"})},
          {"model_type", "gpt2"},
          {"vocab_size", c.vocab},
          {"n_positions", c.seq},
          {"n_embd", c.hidden},
          {"n_layer", c.layers},
          {"n_head", c.heads},
          {"n_inner", c.ffn_size()},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", c.eps()},
          {"attn_pdrop", 0.0},
          {"embd_pdrop", 0.0},
          {"resid_pdrop", 0.0},
          {"summary_first_dropout", 0.0},
          {"scale_attn_weights", true},
          {"tie_word_embeddings", true}};
}

ordered_json llama_config(const ModelConfig& c) {
  return {{"architectures", ordered_json::array({"LlamaForCausalLM"})},
          {"model_type", "llama"},
          {"vocab_size", c.vocab},
          {"max_position_embeddings", c.seq},
          {"hidden_size", c.hidden},
          {"intermediate_size", c.ffn_size()},
          {"num_hidden_layers", c.layers},
          {"num_attention_heads", c.heads},
          {"num_key_value_heads", c.kv()},
          {"head_dim", c.head_dim()},
          {"hidden_act", "silu"},
          {"rms_norm_eps", c.eps()},
          // Older versions of transformers read rope_theta, newer ones
          // rope_parameters.
          {"rope_theta", c.rope_theta},
          {"rope_parameters",
           {{"rope_theta", c.rope_theta}, {"rope_type", "default"}}},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"mlp_bias", false},
          {"tie_word_embeddings", false}};
}

ordered_json mixtral_config(const ModelConfig& c) {
  ordered_json json = llama_config(c);
  json["architectures"] = ordered_json::array({"MixtralForCausalLM"});
  json["model_type"] = "mixtral";
  json.erase("attention_bias");
  json.erase("mlp_bias");
  json["num_local_experts"] = c.expert_count();
  json["num_experts_per_tok"] = c.chosen_experts();
  json["output_router_logits"] = c.router_loss > 0;
  json["router_aux_loss_coef"] = c.router_loss;
  json["router_jitter_noise"] = 0.0;
  json["sliding_window"] = nullptr;
  return json;
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

ModelConfig from_gpt2(Members& m) {
  ModelConfig c{.name = "gpt"};
  c.vocab = m.number<int64_t>("vocab_size");
  c.seq = m.number<int64_t>("n_positions");
  c.hidden = m.number<int64_t>("n_embd");
  c.layers = m.number<int64_t>("n_layer");
  c.heads = m.number<int64_t>("n_head");
  c.ffn = m.number<int64_t>("n_inner", 0);
  c.norm_eps = m.number<double>("layer_norm_epsilon", 1e-5);
  m.only("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  m.only("scale_attn_weights", {true});
  m.only("scale_attn_by_inverse_layer_idx", {false});
  m.only("reorder_and_upcast_attn", {false, true});
  m.only("add_cross_attention", {false});
  m.only("tie_word_embeddings", {true});
  return c;
}

ModelConfig from_llama(Members& m) {
  ModelConfig c{.name = "llama"};
  c.vocab = m.number<int64_t>("vocab_size");
  c.seq = m.number<int64_t>("max_position_embeddings");
  c.hidden = m.number<int64_t>("hidden_size");
  c.ffn = m.number<int64_t>("intermediate_size");
  c.layers = m.number<int64_t>("num_hidden_layers");
  c.heads = m.number<int64_t>("num_attention_heads");
  c.kv_heads = m.number<int64_t>("num_key_value_heads", c.heads);
  c.norm_eps = m.number<double>("rms_norm_eps");
  DT_CHECK(
      c.heads >= 1 && c.hidden >= 1, "load",
      "hidden_size is {} and num_attention_heads {}; both must be at least 1",
      c.hidden, c.heads);
  m.only("head_dim", {c.hidden / c.heads, nullptr});
  m.only("hidden_act", {"silu", "swish"});
  m.only("attention_bias", {false});
  m.only("mlp_bias", {false});
  m.only("tie_word_embeddings", {false});
  m.only("rope_scaling", {nullptr});
  c.rope_theta = m.number<double>("rope_theta", 10000.0);
  if (m.has("rope_parameters")) {
    const json& rope = m.at("rope_parameters");
    if (!rope.is_object() || rope.value("rope_type", "default") != "default" ||
        rope.value("partial_rotary_factor", 1.0) != 1.0)
      m.refuse("rope_parameters", "{\"rope_type\": \"default\"}");
    c.rope_theta = rope.value("rope_theta", c.rope_theta);
  }
  // A mistral whose window covers all positions is a llama.
  if (m.number<int64_t>("sliding_window", c.seq) < c.seq)
    m.refuse("sliding_window", "null");
  return c;
}

// transformers adds the router's loss only if it returns the router's logits.
ModelConfig from_mixtral(Members& m) {
  ModelConfig c = from_llama(m);
  c.name = "mixtral";
  c.experts = m.number<int64_t>("num_local_experts");
  c.top_k = m.number<int64_t>("num_experts_per_tok");
  DT_CHECK(
      c.experts >= 1 && c.top_k >= 1, "load",
      "num_local_experts {} and num_experts_per_tok {} must both be at least 1",
      c.experts, c.top_k);
  m.only("router_jitter_noise", {0.0});
  const double coefficient = m.number<double>("router_aux_loss_coef", 0.001);
  if (m.has("output_router_logits") && m.at("output_router_logits") == true)
    c.router_loss = coefficient;
  return c;
}

}  // namespace

std::string config_text(const ModelConfig& config) {
  ordered_json json = config.name == "gpt"     ? gpt2_config(config)
                      : config.name == "llama" ? llama_config(config)
                                               : mixtral_config(config);
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
  ModelConfig config;
  if (type == "gpt2")
    config = from_gpt2(members);
  else if (type == "llama" || type == "mistral")
    config = from_llama(members);
  else if (type == "mixtral")
    config = from_mixtral(members);
  else
    fail("load",
         "{} is the config of a {}, but this library has only gpt2, llama, "
         "mixtral, and mistral without a sliding window",
         path, type);
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
