// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/architecture.h"

#include <algorithm>

#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"

namespace dtensor::nn {
namespace {

using C = ModelConfig;
using A = Architecture;
using As = NameInFile::As;
using Use = ConfigConstant::Use;

const ConfigKey kTied = {"tie_word_embeddings", &C::tied, false};

// GPT-2's linear layers are Conv1D modules, with weights [in, out].
Architecture gpt() {
  return {
      .name = "gpt",
      .layer_norm = true,
      .norm_eps = 1e-5,
      .rotary = false,
      .grouped = false,
      .bias = true,
      .out_bias = true,
      .mlp = A::Mlp::kPlain,
      .act = Act::kGeluTanh,
      .mlp_bias = true,
      .tied = true,
      .embedding = "transformer.wte",
      .positions = "transformer.wpe",
      .blocks = "transformer.h",
      .norm_1 = "ln_1",
      .attention = "attn",
      .norm_2 = "ln_2",
      .last_norm = "transformer.ln_f",
      .class_name = "GPT2LMHeadModel",
      .model_types = {"gpt2"},
      .keys = {{"vocab_size", &C::vocab},
               {"n_positions", &C::seq},
               {"n_embd", &C::hidden},
               {"n_layer", &C::layers},
               {"n_head", &C::heads},
               {"n_inner", &C::ffn, false},
               {"layer_norm_epsilon", &C::norm_eps, false},
               kTied},
      .constants = {{"activation_function",
                     {"\"gelu_new\"", "\"gelu_pytorch_tanh\""}},
                    {"attn_pdrop", {"0.0"}, Use::kWritten},
                    {"embd_pdrop", {"0.0"}, Use::kWritten},
                    {"resid_pdrop", {"0.0"}, Use::kWritten},
                    {"summary_first_dropout", {"0.0"}, Use::kWritten},
                    {"scale_attn_weights", {"true"}},
                    {"scale_attn_by_inverse_layer_idx", {"false"}, Use::kRead},
                    {"reorder_and_upcast_attn", {"false", "true"}, Use::kRead},
                    {"add_cross_attention", {"false"}, Use::kRead}},
      .names = {{".attn.q_proj.", ".attn.c_attn.", As::kConcatenated, true},
                {".attn.k_proj.", ".attn.c_attn.", As::kConcatenated, true},
                {".attn.v_proj.", ".attn.c_attn.", As::kConcatenated, true},
                {".attn.o_proj.", ".attn.c_proj.", As::kItself, true},
                {".mlp.c_fc.", ".mlp.c_fc.", As::kItself, true},
                {".mlp.c_proj.", ".mlp.c_proj.", As::kItself, true}},
      .optional_prefix = "transformer.",
      .unread = {"*.attn.bias", "*.attn.masked_bias", "lm_head.weight"}};
}

Architecture llama() {
  return {.name = "llama",
          .class_name = "LlamaForCausalLM",
          .model_types = {"llama"},
          .keys = {{"vocab_size", &C::vocab},
                   {"max_position_embeddings", &C::seq},
                   {"hidden_size", &C::hidden},
                   {"intermediate_size", &C::ffn},
                   {"num_hidden_layers", &C::layers},
                   {"num_attention_heads", &C::heads},
                   {"num_key_value_heads", &C::kv_heads, false},
                   {"head_dim", &C::head_size, false},
                   {"rms_norm_eps", &C::norm_eps},
                   {"attention_bias", &C::attention_bias, false},
                   {"mlp_bias", &C::mlp_bias, false},
                   kTied},
          .constants = {{"hidden_act", {"\"silu\"", "\"swish\""}},
                        {"attention_dropout", {"0.0"}, Use::kWritten}},
          .unread = {"*.rotary_emb.inv_freq"}};
}

// A copy of an architecture with another name, class and type, and without
// these keys of the config.
Architecture like(Architecture a, std::string_view name, const char* class_name,
                  const char* type,
                  std::initializer_list<std::string_view> without = {}) {
  a.name = name;
  a.class_name = class_name;
  a.model_types = {type};
  for (const std::string_view key : without)
    std::erase_if(a.keys, [&](const ConfigKey& k) { return key == k.key; });
  return a;
}

Architecture mistral() {
  Architecture a = like(llama(), "mistral", "MistralForCausalLM", "mistral",
                        {"attention_bias", "mlp_bias"});
  a.windows = A::Windows::kAll;
  return a;
}

// Files have one tensor for each expert; the model has one for all experts of a
// layer.
std::vector<NameInFile> expert_names(const char* gate, const char* up,
                                     const char* down) {
  return {{".mlp.experts.gate_proj", gate, As::kByExperts},
          {".mlp.experts.up_proj", up, As::kByExperts},
          {".mlp.experts.down_proj", down, As::kByExperts}};
}

Architecture mixtral() {
  Architecture a = like(mistral(), "mixtral", "MixtralForCausalLM", "mixtral");
  a.mlp = A::Mlp::kExperts;
  a.keys.insert(a.keys.end(), {{"num_local_experts", &C::experts},
                               {"num_experts_per_tok", &C::top_k}});
  a.constants.push_back({"router_jitter_noise", {"0.0"}});
  a.names = expert_names(".block_sparse_moe.experts.{}.w1.weight",
                         ".block_sparse_moe.experts.{}.w3.weight",
                         ".block_sparse_moe.experts.{}.w2.weight");
  a.names.push_back({".mlp.gate.", ".block_sparse_moe.gate."});
  return a;
}

Architecture qwen2() {
  Architecture a = like(llama(), "qwen2", "Qwen2ForCausalLM", "qwen2",
                        {"attention_bias", "mlp_bias", "head_dim"});
  a.bias = true;
  a.windows = A::Windows::kUpper;
  return a;
}

Architecture qwen3() {
  Architecture a =
      like(llama(), "qwen3", "Qwen3ForCausalLM", "qwen3", {"mlp_bias"});
  a.head_norm = HeadNorm::kEachHead;
  a.windows = A::Windows::kUpper;
  return a;
}

Architecture qwen3_moe() {
  Architecture a = like(qwen3(), "qwen3-moe", "Qwen3MoeForCausalLM",
                        "qwen3_moe", {"intermediate_size"});
  a.mlp = A::Mlp::kExperts;
  // Newer files say num_local_experts, older ones num_experts.
  a.keys.insert(a.keys.end(), {{"moe_intermediate_size", &C::ffn},
                               {"num_experts", &C::experts, false},
                               {"num_local_experts", &C::experts, false},
                               {"num_experts_per_tok", &C::top_k},
                               {"norm_topk_prob", &C::norm_top_k, false}});
  // Every layer has experts, so that the size of a plain MLP does not matter.
  a.constants.insert(a.constants.end(), {{"intermediate_size", {}, Use::kRead},
                                         {"decoder_sparse_step", {"1"}},
                                         {"mlp_only_layers", {"[]", "null"}}});
  a.names = expert_names(".mlp.experts.{}.gate_proj.weight",
                         ".mlp.experts.{}.up_proj.weight",
                         ".mlp.experts.{}.down_proj.weight");
  return a;
}

Architecture phi3() {
  Architecture a = like(llama(), "phi3", "Phi3ForCausalLM", "phi3",
                        {"attention_bias", "mlp_bias", "head_dim"});
  a.norm_eps = 1e-5;
  a.windows = A::Windows::kAll;
  a.constants.push_back({"embd_pdrop", {"0.0"}, Use::kWritten});
  a.constants.push_back({"resid_pdrop", {"0.0"}, Use::kWritten});
  for (const char* ours :
       {".self_attn.q_proj.", ".self_attn.k_proj.", ".self_attn.v_proj."})
    a.names.push_back({ours, ".self_attn.qkv_proj.", As::kConcatenated});
  for (const char* ours : {".mlp.gate_proj.", ".mlp.up_proj."})
    a.names.push_back({ours, ".mlp.gate_up_proj.", As::kConcatenated});
  return a;
}

Architecture gemma2() {
  Architecture a =
      like(llama(), "gemma2", "Gemma2ForCausalLM", "gemma2", {"mlp_bias"});
  a.plus_one = true;
  a.act = Act::kGeluTanh;
  a.scaled_embedding = true;
  a.tied = true;
  a.windows = A::Windows::kEven;
  a.after_1 = "post_attention_layernorm";
  a.norm_2 = "pre_feedforward_layernorm";
  a.after_2 = "post_feedforward_layernorm";
  a.keys.insert(a.keys.end(),
                {{"query_pre_attn_scalar", &C::query_scalar},
                 {"attn_logit_softcapping", &C::attention_soft_cap, false},
                 {"final_logit_softcapping", &C::logit_soft_cap, false}});
  a.constants = {
      {"hidden_activation", {"\"gelu_pytorch_tanh\"", "null"}},
      // Older files have this member, but the model does not use it.
      {"hidden_act", {"\"gelu_pytorch_tanh\"", "\"gelu\""}, Use::kRead},
      {"cache_implementation", {"\"hybrid\""}, Use::kRead},
      {"use_bidirectional_attention", {"null", "false"}, Use::kRead},
      {"attention_dropout", {"0.0"}, Use::kWritten}};
  return a;
}

Architecture olmo2() {
  Architecture a = like(llama(), "olmo2", "Olmo2ForCausalLM", "olmo2",
                        {"mlp_bias", "head_dim"});
  a.norm_eps = 1e-5;
  a.head_norm = HeadNorm::kAllHeads;
  a.norm_1 = a.norm_2 = nullptr;
  a.after_1 = "post_attention_layernorm";
  a.after_2 = "post_feedforward_layernorm";
  return a;
}

Architecture gpt_neox() {
  return {
      .name = "gpt-neox",
      .layer_norm = true,
      .norm_eps = 1e-5,
      .grouped = false,
      .bias = true,
      .out_bias = true,
      .mlp = A::Mlp::kPlain,
      .act = Act::kGelu,
      .mlp_bias = true,
      .parallel = true,
      .embedding = "gpt_neox.embed_in",
      .blocks = "gpt_neox.layers",
      .attention = "attention",
      .last_norm = "gpt_neox.final_layer_norm",
      .head = "embed_out",
      .class_name = "GPTNeoXForCausalLM",
      .model_types = {"gpt_neox"},
      .keys = {{"vocab_size", &C::vocab},
               {"max_position_embeddings", &C::seq},
               {"hidden_size", &C::hidden},
               {"intermediate_size", &C::ffn},
               {"num_hidden_layers", &C::layers},
               {"num_attention_heads", &C::heads},
               {"layer_norm_eps", &C::norm_eps, false},
               {"use_parallel_residual", &C::parallel, false},
               kTied},
      .constants = {{"hidden_act", {"\"gelu\""}},
                    {"is_decoder", {"false"}, Use::kRead},
                    {"attention_bias", {"true"}},
                    {"attention_dropout", {"0.0"}, Use::kWritten},
                    {"hidden_dropout", {"0.0"}, Use::kWritten}},
      .rope_theta = "rotary_emb_base",
      .rope_part = "rotary_pct",
      .rotated_part = 0.25,
      .names =
          {{".attention.q_proj.", ".attention.query_key_value.", As::kByHeads},
           {".attention.k_proj.", ".attention.query_key_value.", As::kByHeads},
           {".attention.v_proj.", ".attention.query_key_value.", As::kByHeads},
           {".attention.o_proj.", ".attention.dense."},
           {".mlp.c_fc.", ".mlp.dense_h_to_4h."},
           {".mlp.c_proj.", ".mlp.dense_4h_to_h."}},
      .optional_prefix = "gpt_neox.",
      .unread = {"*.attention.bias", "*.attention.masked_bias",
                 "*.rotary_emb.inv_freq"}};
}

// BERT: the encoder alone, or with the head of the masked language model.
Architecture bert(bool masked) {
  return {
      .name = masked ? "bert-mlm" : "bert",
      .layer_norm = true,
      .norm_eps = 1e-12,
      .rotary = false,
      .causal = false,
      .grouped = false,
      .bias = true,
      .out_bias = true,
      .mlp = A::Mlp::kPlain,
      .act = Act::kGelu,
      .mlp_bias = true,
      .head_kind = masked ? A::Head::kMasked : A::Head::kNone,
      .tied = true,
      .norm_of_sum = true,
      .embedding = "bert.embeddings.word_embeddings",
      .positions = "bert.embeddings.position_embeddings",
      .token_types = "bert.embeddings.token_type_embeddings",
      .first_norm = "bert.embeddings.LayerNorm",
      .blocks = "bert.encoder.layer",
      .norm_1 = "attention.output.LayerNorm",
      .attention = "attention",
      .norm_2 = "output.LayerNorm",
      .last_norm = nullptr,
      .head = masked ? "cls.predictions" : nullptr,
      .pooler = masked ? nullptr : "bert.pooler.dense",
      .class_name = masked ? "BertForMaskedLM" : "BertModel",
      .model_types = {"bert"},
      .keys = {{"vocab_size", &C::vocab},
               {"max_position_embeddings", &C::seq},
               {"hidden_size", &C::hidden},
               {"intermediate_size", &C::ffn},
               {"num_hidden_layers", &C::layers},
               {"num_attention_heads", &C::heads},
               {"layer_norm_eps", &C::norm_eps, false}},
      .constants = {{"hidden_act", {"\"gelu\""}},
                    {"position_embedding_type", {"\"absolute\""}, Use::kRead},
                    {"type_vocab_size", {"2"}},
                    {"is_decoder", {"false"}, Use::kRead},
                    {"add_cross_attention", {"false"}, Use::kRead},
                    {"tie_word_embeddings", {"true"}},
                    {"attention_probs_dropout_prob", {"0.0"}, Use::kWritten},
                    {"hidden_dropout_prob", {"0.0"}, Use::kWritten}},
      .names = {{".attention.q_proj.", ".attention.self.query."},
                {".attention.k_proj.", ".attention.self.key."},
                {".attention.v_proj.", ".attention.self.value."},
                {".attention.o_proj.", ".attention.output.dense."},
                {".mlp.c_fc.", ".intermediate.dense."},
                {".mlp.c_proj.", ".output.dense."}},
      .optional_prefix = "bert.",
      .unread = {"bert.pooler.*", "*.position_ids", "cls.seq_relationship.*",
                 "cls.predictions.decoder.*"}};
}

std::deque<Architecture> make_all() {
  return {gpt(),      llama(),     mixtral(), qwen2(),  mistral(),
          qwen3(),    qwen3_moe(), phi3(),    gemma2(), olmo2(),
          gpt_neox(), bert(false), bert(true)};
}

// A deque, so that references stay valid when architectures are added.
std::deque<Architecture>& all() {
  static auto* rows = new std::deque<Architecture>(make_all());
  return *rows;
}

}  // namespace

const std::deque<Architecture>& architectures() { return all(); }

void add_architecture(const Architecture& a) {
  DT_CHECK(!a.name.empty() && a.class_name && !a.model_types.empty(),
           "architecture",
           "the architecture's name is \"{}\", its class_name is {} and the "
           "size of its model_types is {}; set all three",
           a.name, a.class_name ? fmt::format("\"{}\"", a.class_name) : "null",
           a.model_types.size());
  DT_CHECK(!RankContext::current_or_null(), "architecture",
           "architecture \"{}\" is added inside run(); add it before", a.name);
  for (const Architecture& other : all()) {
    DT_CHECK(other.name != a.name, "architecture",
             "there is a \"{}\" already; give the new one another name",
             a.name);
    for (const std::string_view type : a.model_types)
      DT_CHECK(other.class_name != std::string_view(a.class_name) ||
                   std::find(other.model_types.begin(), other.model_types.end(),
                             type) == other.model_types.end(),
               "architecture",
               "\"{}\" and \"{}\" both read the files of class {} and type {}; "
               "give \"{}\" another class or type",
               other.name, a.name, a.class_name, type, a.name);
  }
  all().push_back(a);
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
