#include "dtensor/nn/pretrained.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "dtensor/placement/error.h"
#include "dtensor/runtime/io/safetensors.h"
#include "dtensor/runtime/rank_context.h"

namespace dtensor::nn {
namespace {

using nlohmann::ordered_json;

// Where a parameter goes: a window of a tensor of the file.
struct Target {
  std::string name;
  Shape shape;  // of the whole tensor in the file
  SafetensorsWindow window;
};

// GPT-2's linear layers are Conv1D modules, with weights [in, out]; queries,
// keys and values are one of them, side by side.
Target gpt2_target(const std::string& name, const Shape& shape) {
  Target t{name, shape, {}};
  const auto replace = [&](std::string_view from, std::string_view to) {
    const size_t at = t.name.find(from);
    if (at == std::string::npos) return false;
    t.name.replace(at, from.size(), to);
    return true;
  };
  const bool linear = matches("transformer.h.*.attn.*", name) ||
                      matches("transformer.h.*.mlp.*", name);
  if (!linear) return t;
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
  return t;
}

Target target(const ModelConfig& config, const std::string& name,
              const Shape& shape) {
  // Llama's own names are ours.
  if (config.name == "llama") return {name, shape, {}};
  return gpt2_target(name, shape);
}

std::string torch_name(DType t) {
  if (t == DType::kF64) return "float64";
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
          {"layer_norm_epsilon", 1e-5},
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
          {"rms_norm_eps", 1e-6},
          // Older versions read the one, newer ones the other.
          {"rope_theta", c.rope_theta},
          {"rope_parameters",
           {{"rope_theta", c.rope_theta}, {"rope_type", "default"}}},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"mlp_bias", false},
          {"tie_word_embeddings", false}};
}

// The whole file or none, under its name.
void write_text(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp";
  std::FILE* f = std::fopen(temporary.c_str(), "we");
  bool ok = f && std::fwrite(text.data(), 1, text.size(), f) == text.size();
  if (f) ok = (std::fclose(f) == 0) && ok;
  if (ok) ok = std::rename(temporary.c_str(), path.c_str()) == 0;
  if (ok) return;
  const int e = errno;
  std::remove(temporary.c_str());
  fail("save", "{} cannot be written: {}", path, std::strerror(e));
}

}  // namespace

void save_pretrained(const LanguageModel& model, const std::string& dir) {
  const ModelConfig& config = model.config();
  const std::vector<NamedParameter> parameters = model.named_parameters();
  std::vector<TensorInfo> tensors;
  for (const NamedParameter& p : parameters) {
    const Target t = target(config, p.name, p.tensor.shape());
    const bool known =
        std::any_of(tensors.begin(), tensors.end(),
                    [&](const TensorInfo& i) { return i.name == t.name; });
    if (!known) tensors.push_back({t.name, p.tensor.dtype(), t.shape});
  }
  RankContext& context = RankContext::current();
  const Mesh& mesh = model.mesh();
  const bool first =
      !context.dry_run && mesh.rank(context.coordinate(mesh)) == 0;
  if (first) {
    std::error_code e;
    std::filesystem::create_directories(dir, e);
    DT_CHECK(std::filesystem::is_directory(dir), "save",
             "{} is no folder and cannot become one: {}", dir,
             e ? e.message() : "a file of that name exists");
  }
  SafetensorsWriter writer(mesh, dir + "/model.safetensors",
                           std::move(tensors));
  for (const NamedParameter& p : parameters) {
    const Target t = target(config, p.name, p.tensor.shape());
    writer.write(t.name, p.tensor, t.window);
  }
  if (first) {
    ordered_json json =
        config.name == "gpt" ? gpt2_config(config) : llama_config(config);
    json["bos_token_id"] = nullptr;
    json["eos_token_id"] = nullptr;
    json["use_cache"] = true;
    json["dtype"] = torch_name(config.dtype);
    write_text(dir + "/config.json", json.dump(2) + "\n");
  }
  writer.finish();
}

}  // namespace dtensor::nn
