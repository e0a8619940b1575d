#include "dtensor/nn/architecture.h"

#include "dtensor/nn/parallel.h"
#include "dtensor/placement/error.h"

namespace dtensor::nn {
namespace {

// GPT-2's linear layers are Conv1D modules, with weights [in, out]; queries,
// keys and values are stored side by side in one of them.
std::vector<PlaceInFile> gpt2_places(const std::string& name,
                                     const Shape& shape) {
  PlaceInFile t{name, shape};
  const auto replace = [&](std::string_view from, std::string_view to) {
    const size_t at = t.name.find(from);
    if (at == std::string::npos) return false;
    t.name.replace(at, from.size(), to);
    return true;
  };
  const bool linear = matches("transformer.h.*.attn.*", name) ||
                      matches("transformer.h.*.mlp.*", name);
  if (!linear) return {t};
  if (shape.size() == 2) {
    t.shape = {shape[1], shape[0]};
    t.window.order = {1, 0};
  }
  t.window.offset = Shape::filled(shape.size(), 0);
  replace(".attn.o_proj.", ".attn.c_proj.");
  int part = 0;
  for (const char* p : {".attn.q_proj.", ".attn.k_proj.", ".attn.v_proj."}) {
    if (replace(p, ".attn.c_attn.")) {
      t.window.offset.back() = part * t.shape.back();
      t.shape.back() *= 3;
    }
    ++part;
  }
  return {t};
}

// Mixtral stores one tensor for each expert, under other names.
std::vector<PlaceInFile> mixtral_places(const std::string& name,
                                        const Shape& shape) {
  const std::string layer = name.substr(0, name.find(".mlp."));
  if (layer == name) return {{name, shape}};
  const std::string moe = layer + ".block_sparse_moe.";
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"*.experts.gate_proj", "w1"},
      {"*.experts.down_proj", "w2"},
      {"*.experts.up_proj", "w3"}};
  for (const auto& [ours, theirs] : kNames) {
    if (!matches(ours, name)) continue;
    std::vector<PlaceInFile> all;
    for (int64_t e = 0; e < shape[0]; ++e)
      all.push_back({fmt::format("{}experts.{}.{}.weight", moe, e, theirs),
                     {shape[1], shape[2]},
                     {},
                     e});
    return all;
  }
  return {{moe + "gate.weight", shape}};
}

std::vector<Architecture> make_all() {
  using C = ModelConfig;
  using Use = ConfigConstant::Use;
  const Architecture gpt{
      .name = "gpt",
      .layer_norm = true,
      .norm_eps = 1e-5,
      .rotary = false,
      .grouped = false,
      .bias = true,
      .out_bias = true,
      .mlp = Architecture::Mlp::kGelu,
      .embedding = "transformer.wte",
      .positions = "transformer.wpe",
      .blocks = "transformer.h",
      .norm_1 = "ln_1",
      .attention = "attn",
      .norm_2 = "ln_2",
      .last_norm = "transformer.ln_f",
      .head = nullptr,
      .split = {{"*.wte.weight", 0}, {"*.c_fc.*", 0}, {"*.c_proj.weight", 1}},
      .class_name = "GPT2LMHeadModel",
      .types = {"gpt2"},
      .keys = {{"vocab_size", &C::vocab},
               {"n_positions", &C::seq},
               {"n_embd", &C::hidden},
               {"n_layer", &C::layers},
               {"n_head", &C::heads},
               {"n_inner", &C::ffn, false},
               {"layer_norm_epsilon", &C::norm_eps, false}},
      .constants = {{"activation_function",
                     {"\"gelu_new\"", "\"gelu_pytorch_tanh\""}},
                    {"attn_pdrop", {"0.0"}, Use::kWritten},
                    {"embd_pdrop", {"0.0"}, Use::kWritten},
                    {"resid_pdrop", {"0.0"}, Use::kWritten},
                    {"summary_first_dropout", {"0.0"}, Use::kWritten},
                    {"scale_attn_weights", {"true"}},
                    {"tie_word_embeddings", {"true"}},
                    {"scale_attn_by_inverse_layer_idx", {"false"}, Use::kRead},
                    {"reorder_and_upcast_attn", {"false", "true"}, Use::kRead},
                    {"add_cross_attention", {"false"}, Use::kRead}},
      .places = gpt2_places,
      .optional_prefix = "transformer.",
      .repeated = "lm_head.weight"};
  const Architecture llama{
      .name = "llama",
      .split = {{"*.embed_tokens.weight", 0},
                {"lm_head.weight", 0},
                {"*.gate_proj.weight", 0},
                {"*.up_proj.weight", 0},
                {"*.down_proj.weight", 1}},
      .class_name = "LlamaForCausalLM",
      // A mistral whose window covers all positions is a llama.
      .types = {"llama", "mistral"},
      .keys = {{"vocab_size", &C::vocab},
               {"max_position_embeddings", &C::seq},
               {"hidden_size", &C::hidden},
               {"intermediate_size", &C::ffn},
               {"num_hidden_layers", &C::layers},
               {"num_attention_heads", &C::heads},
               {"num_key_value_heads", &C::kv_heads, false},
               {"rms_norm_eps", &C::norm_eps}},
      .constants = {{"hidden_act", {"\"silu\"", "\"swish\""}},
                    {"attention_bias", {"false"}},
                    {"attention_dropout", {"0.0"}, Use::kWritten},
                    {"mlp_bias", {"false"}},
                    {"tie_word_embeddings", {"false"}},
                    {"rope_scaling", {"null"}, Use::kRead}}};
  Architecture mixtral = llama;
  mixtral.name = "mixtral";
  mixtral.mlp = Architecture::Mlp::kExperts;
  mixtral.split = {{"*.embed_tokens.weight", 0},
                   {"lm_head.weight", 0},
                   {"*.experts.gate_proj", 1},
                   {"*.experts.up_proj", 1},
                   {"*.experts.down_proj", 2}};
  mixtral.class_name = "MixtralForCausalLM";
  mixtral.types = {"mixtral"};
  mixtral.keys.insert(mixtral.keys.end(), {{"num_local_experts", &C::experts},
                                           {"num_experts_per_tok", &C::top_k}});
  for (ConfigConstant& c : mixtral.constants)
    if (std::string_view(c.key).ends_with("_bias")) c.use = Use::kRead;
  mixtral.constants.push_back({"router_jitter_noise", {"0.0"}});
  mixtral.constants.push_back({"sliding_window", {"null"}, Use::kWritten});
  mixtral.places = mixtral_places;
  Architecture qwen2 = llama;
  qwen2.name = "qwen2";
  qwen2.bias = true;
  qwen2.class_name = "Qwen2ForCausalLM";
  qwen2.types = {"qwen2"};
  for (ConfigConstant& c : qwen2.constants)
    if (std::string_view(c.key).ends_with("_bias")) c.use = Use::kRead;
  qwen2.constants.push_back({"use_sliding_window", {"false"}});
  return {gpt, llama, mixtral, qwen2};
}

}  // namespace

std::span<const Architecture> architectures() {
  static const auto* all = new std::vector<Architecture>(make_all());
  return *all;
}

const Architecture& architecture(std::string_view name) {
  for (const Architecture& a : architectures())
    if (a.name == name) return a;
  fail("model", "there is no model \"{}\"; write {}", name,
       architecture_names());
}

std::string architecture_names(bool (*which)(const Architecture&)) {
  std::vector<std::string_view> names;
  for (const Architecture& a : architectures())
    if (!which || which(a)) names.push_back(a.name);
  std::string text(names[0]);
  for (size_t i = 1; i < names.size(); ++i)
    text += fmt::format("{} {}", i + 1 == names.size() ? " or" : ",", names[i]);
  return text;
}

}  // namespace dtensor::nn
