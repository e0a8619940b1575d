// SPDX-License-Identifier: Apache-2.0
// Adds a family of models that the library does not have: StarCoder2
// (https://arxiv.org/abs/2402.19173), as an nn::Architecture of the program's
// own. Reads a checkpoint folder in the format of transformers (Hugging Face),
// and continues a text on any mesh.
//
//   bazel run //examples:12_own_architecture -- --model DIR --mesh tp=3
//
// To check the architecture, tools/golden_models.py writes a small DIR with the
// logits that transformers computes, and the example compares its own logits
// with them. Without --model, the example makes a checkpoint itself.
#include <unistd.h>

#include <filesystem>

#include "dtensor/dtensor.h"
#include "dtensor/nn/architecture.h"

using namespace dtensor;
namespace fs = std::filesystem;

namespace {

// StarCoder2 differs from Llama by layer norms, biases, a plain MLP with gelu,
// and the names of some members of config.json.
nn::Architecture starcoder2() {
  using C = nn::ModelConfig;
  using Use = nn::ConfigConstant::Use;
  return {.name = "starcoder2",
          .layer_norm = true,
          .norm_eps = 1e-5,
          .bias = true,
          .out_bias = true,
          .windows = nn::Architecture::Windows::kAll,
          .mlp = nn::Architecture::Mlp::kPlain,
          .act = nn::Act::kGeluTanh,
          .mlp_bias = true,
          .tied = true,
          .class_name = "Starcoder2ForCausalLM",
          .model_types = {"starcoder2"},
          .keys = {{"vocab_size", &C::vocab},
                   {"max_position_embeddings", &C::seq},
                   {"hidden_size", &C::hidden},
                   {"intermediate_size", &C::ffn},
                   {"num_hidden_layers", &C::layers},
                   {"num_attention_heads", &C::heads},
                   {"num_key_value_heads", &C::kv_heads},
                   {"norm_epsilon", &C::norm_eps, false},
                   {"tie_word_embeddings", &C::tied, false}},
          .constants = {{"hidden_act", {"\"gelu_pytorch_tanh\""}},
                        {"use_bias", {"true"}},
                        {"mlp_type", {"\"default\""}, Use::kRead},
                        {"norm_type", {"\"layer_norm\""}, Use::kRead}}};
}

void example(Runtime& rt, std::string dir) {
  const Mesh mesh = rt.mesh();
  const bool print = rt.rank() == 0 && !rt.dry_run(), own = dir.empty();
  if (own) {
    dir = fs::temp_directory_path() /
          fmt::format("12_own_architecture.{}",
                      all_gather("process", getpid())[0]);
    nn::save_pretrained(*nn::make_model({.name = "starcoder2",
                                         .layers = 2,
                                         .hidden = 48,
                                         .heads = 6,
                                         .kv_heads = 2,
                                         .vocab = 50},
                                        mesh),
                        dir);
    if (rt.dry_run()) return;
  }
  const auto model = nn::from_pretrained(dir, mesh, {.dtype = DType::kF64});
  const std::string expected = dir + "/expected.safetensors";
  if (!rt.dry_run() && fs::exists(expected)) {
    const SafetensorsReader file(expected);
    const Tensor ids = file.read("input_ids"), want = file.read("logits");
    const std::vector<double> got =
        model
            ->logits(DistTensor::from_global(
                ids, mesh, nn::batch_layout(mesh, ids.shape())))
            .full()
            .to_doubles();
    double most = 0;
    for (size_t i = 0; i < got.size(); ++i)
      most = std::max(most, std::abs(got[i] - want.at(int64_t(i))));
    DT_CHECK(most < 1e-10, "12_own_architecture",
             "a logit differs from that of transformers by {}; expected less "
             "than 1e-10",
             most);
    if (print) fmt::print("{} logits are as in transformers\n", got.size());
  }
  const std::vector<int64_t> ids = nn::generate(
      *model,
      {.tokens = 12, .prompt = {7, 3, 11}, .sampling = {.temperature = 0}});
  if (print) fmt::print("7 3 11 -> {}\n", fmt::join(ids, " "));
  if (print && own) fs::remove_all(dir);
}

}  // namespace

int main(int argc, char** argv) {
  nn::add_architecture(starcoder2());
  std::string dir;
  Program program({.about = "Reads a checkpoint of StarCoder2, by a row of "
                            "its own, and continues a text.",
                   .mesh = "tp=3"});
  program.add("--model", &dir, "a folder of transformers", TextKind::kFolder);
  return program.main(argc, argv, nullptr, [&] {
    run(program.run_options(), [&](Runtime& rt) { example(rt, dir); });
  });
}
