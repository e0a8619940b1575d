// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "dtensor/autograd.h"
#include "dtensor/io/safetensors.h"
#include "dtensor/nn/architecture.h"
#include "dtensor/nn/layers.h"
#include "dtensor/nn/models.h"
#include "dtensor/nn/pretrained_config.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "tests/nn/on_mesh.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

namespace fs = std::filesystem;
using dtensor::testing::error_of;
using Values = std::vector<double>;

class Pretrained : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::path(::testing::TempDir()) /
           ("pretrained_" + std::to_string(::getpid()));
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  std::string save(const std::string& mesh, const ModelConfig& config) {
    const std::string to = (dir_ / (config.name + "_" + mesh)).string();
    on_mesh<int>(mesh, [&](const Mesh& m) {
      save_pretrained(*make_model(config, m, 3), to);
      return 0;
    });
    return to;
  }
  static std::string bytes(const std::string& path) {
    std::ifstream f(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(f), {}};
  }
  fs::path dir_;
};

ModelConfig tiny(const std::string& name) {
  ModelConfig c{.name = name,
                .layers = 2,
                .hidden = 24,
                .heads = 6,
                .seq = 5,
                .vocab = 17};
  if (architecture(name).grouped) c.kv_heads = 2;
  if (architecture(name).experts()) {
    c.experts = 3;
    c.top_k = 1;
    c.ffn = 7;
    c.router_loss = 0.25;
  }
  return c;
}

TEST_F(Pretrained, TheSameFilesFromEveryMesh) {
  for (const char* name : {"gpt", "llama", "mixtral"}) {
    const std::string one = save("dp=1", tiny(name));
    for (const std::string& mesh : test_meshes()) {
      const std::string other = save(mesh, tiny(name));
      for (const char* file : {"/model.safetensors", "/config.json"})
        EXPECT_TRUE(bytes(other + file) == bytes(one + file))
            << name << file << " on " << mesh;
      EXPECT_FALSE(fs::exists(other + "/model.safetensors.tmp"));
    }
  }
}

// In a file, each expert is a tensor of its own. Stages and ranks of ep have
// some of them.
TEST_F(Pretrained, ExpertsFromEveryMesh) {
  ModelConfig config = tiny("mixtral");
  config.experts = 3;
  const std::string one = save("dp=1", config);
  for (const char* mesh : {"ep=2", "ep=4,tp=2", "pp=2,dp=1", "ep=2,pp=2"}) {
    const std::string other = save(mesh, config);
    for (const char* file : {"/model.safetensors", "/config.json"})
      EXPECT_TRUE(bytes(other + file) == bytes(one + file)) << file << mesh;
    on_mesh<int>(mesh, [&](const Mesh& m) {
      const auto want = make_model(config, m, 3), got = from_pretrained(one, m);
      for (const NamedParameter& p : want->named_parameters())
        if (p.tensor.here()) {
          EXPECT_EQ(values(got->parameter(p.name)), values(p.tensor)) << p.name;
        }
      return 0;
    });
  }
}

TEST_F(Pretrained, Gpt2sTensors) {
  const ModelConfig config = tiny("gpt");
  const std::string dir = save("dp=2,tp=3", config);
  on_mesh<int>("dp=1", [&](const Mesh& m) {
    const SafetensorsReader file(dir + "/model.safetensors");
    EXPECT_EQ(file.metadata().at("format"), "pt");
    EXPECT_FALSE(file.contains("lm_head.weight"));
    EXPECT_EQ(file.tensors().size(), 2u + 2 * 12 + 2);
    const auto model = make_model(config, m, 3);
    const auto expect = [&](const std::string& name, const DistTensor& ours,
                            Shape shape, bool transposed, int part = -1) {
      Tensor theirs = file.read(name);
      EXPECT_EQ(theirs.shape(), shape) << name;
      if (part >= 0)
        theirs = theirs.slice(shape.size() - 1, 24 * part, 24 * part + 24);
      if (transposed) theirs = theirs.transpose(0, 1);
      EXPECT_EQ(values(theirs), values(ours)) << name;
    };
    const auto ours = [&](const std::string& n) { return model->parameter(n); };
    const std::string h = "transformer.h.1.";
    expect("transformer.wte.weight", ours("transformer.wte.weight"), {17, 24},
           false);
    expect("transformer.ln_f.bias", ours("transformer.ln_f.bias"), {24}, false);
    expect(h + "ln_1.weight", ours(h + "ln_1.weight"), {24}, false);
    expect(h + "mlp.c_fc.weight", ours(h + "mlp.c_fc.weight"), {24, 96}, true);
    expect(h + "mlp.c_fc.bias", ours(h + "mlp.c_fc.bias"), {96}, false);
    expect(h + "mlp.c_proj.weight", ours(h + "mlp.c_proj.weight"), {96, 24},
           true);
    expect(h + "attn.c_proj.weight", ours(h + "attn.o_proj.weight"), {24, 24},
           true);
    const char* names[] = {"q", "k", "v"};
    for (int i = 0; i < 3; ++i) {
      const std::string part = h + "attn." + names[i] + "_proj.";
      expect(h + "attn.c_attn.weight", ours(part + "weight"), {24, 72}, true,
             i);
      expect(h + "attn.c_attn.bias", ours(part + "bias"), {72}, false, i);
    }
    return 0;
  });
  const auto json = nlohmann::json::parse(bytes(dir + "/config.json"));
  EXPECT_EQ(json["architectures"], nlohmann::json::array({"GPT2LMHeadModel"}));
  EXPECT_EQ(json["n_inner"], 96);
  EXPECT_TRUE(json["bos_token_id"].is_null());
  EXPECT_TRUE(json["tie_word_embeddings"]);
}

TEST_F(Pretrained, LlamasTensors) {
  const ModelConfig config = tiny("llama");
  const std::string dir = save("tp=4", config);
  on_mesh<int>("dp=1", [&](const Mesh& m) {
    const SafetensorsReader file(dir + "/model.safetensors");
    const auto model = make_model(config, m, 3);
    EXPECT_EQ(file.tensors().size(), model->named_parameters().size());
    for (const NamedParameter& p : model->named_parameters()) {
      const Tensor t = file.read(p.name);
      EXPECT_EQ(t.shape(), p.tensor.shape()) << p.name;
      EXPECT_EQ(values(t), values(p.tensor)) << p.name;
    }
    return 0;
  });
  const auto json = nlohmann::json::parse(bytes(dir + "/config.json"));
  EXPECT_EQ(json["num_key_value_heads"], 2);
  EXPECT_EQ(json["head_dim"], 4);
  EXPECT_EQ(json["rope_theta"], 10000);
  EXPECT_EQ(json["rope_parameters"]["rope_theta"], 10000);
  EXPECT_TRUE(json["eos_token_id"].is_null());
}

// A config that is written and read is the same.
TEST_F(Pretrained, ConfigsComeBack) {
  for (const Architecture& a : architectures()) {
    const std::string name(a.name);
    ModelConfig config = tiny(name);
    const std::string path = (dir_ / name).string();
    std::ofstream(path) << config_text(config);
    const ModelConfig back = read_config(path);
    EXPECT_EQ(config_text(back), config_text(config));
    EXPECT_EQ(back.name, config.name);
    EXPECT_EQ(back.ffn_size(), config.ffn_size());
    EXPECT_EQ(back.kv(), config.kv());
    EXPECT_EQ(back.experts, config.experts);
    EXPECT_EQ(back.top_k, config.top_k);
    EXPECT_EQ(back.router_loss, config.router_loss);
  }
  const std::string path = (dir_ / "none").string();
  for (const char* member : {"num_experts_per_tok", "num_local_experts"}) {
    auto json = nlohmann::json::parse(config_text(tiny("mixtral")));
    json[member] = 0;
    std::ofstream(path) << json.dump();
    try {
      read_config(path);
      ADD_FAILURE() << member;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(std::string(member) + " 0"),
                std::string::npos)
          << e.what();
    }
  }
}

// Refuses a member that makes the model compute something else, or that it does
// not know. Accepts members that change no number, or that say what is the
// default.
TEST_F(Pretrained, RefusesWhatItDoesNotCompute) {
  const std::string path = (dir_ / "other").string();
  const auto error_with = [&](const char* model, const char* member,
                              const char* value) {
    auto json = nlohmann::json::parse(config_text(tiny(model)));
    json[member] = nlohmann::json::parse(value);
    std::ofstream(path) << json.dump();
    return error_of([&] { read_config(path); });
  };
  const struct {
    const char *model, *member, *value;
  } refused[] = {
      {"gpt", "activation_function", "\"relu\""},
      {"gpt", "scale_attn_weights", "false"},
      {"gpt", "scale_attn_by_inverse_layer_idx", "true"},
      {"gpt", "reorder_and_upcast_attn", "1"},
      {"gpt", "add_cross_attention", "true"},
      {"gpt", "tie_word_embeddings", "1"},
      {"gpt", "n_inner", "1.5"},
      {"llama", "hidden_act", "\"gelu\""},
      {"llama", "attention_bias", "\"yes\""},
      {"llama", "rope_scaling", "{\"factor\":2.0,\"type\":\"dynamic\"}"},
      {"llama", "rope_scaling", "{\"factor\":0,\"type\":\"linear\"}"},
      {"llama", "rope_parameters", "{\"rope_type\":\"yarn\"}"},
      {"llama", "rope_parameters", "{\"factor\":8.0,\"rope_type\":\"llama3\"}"},
      {"llama", "sliding_window", "4"},
      {"llama", "layer_types", "[\"sliding_attention\"]"},
      {"mistral", "layer_types", "[\"chunked_attention\",\"full_attention\"]"},
      {"mistral", "layer_types", "[\"full_attention\"]"},
      {"gpt-neox", "hidden_act", "\"gelu_new\""},
      {"bert", "position_embedding_type", "\"relative_key\""},
      {"gemma2", "use_bidirectional_attention", "true"},
      {"qwen3-moe", "decoder_sparse_step", "2"},
      {"mixtral", "router_jitter_noise", "0.1"},
  };
  for (const auto& [model, member, value] : refused)
    EXPECT_NE(error_with(model, member, value)
                  .find(std::string("says \"") + member + "\": " + value +
                        ", but this library reads only "),
              std::string::npos)
        << error_with(model, member, value);
  EXPECT_NE(error_with("gpt", "n_embd_of_old", "24")
                .find("says \"n_embd_of_old\": 24, which this library does not "
                      "know in such a file; "),
            std::string::npos);
  const std::string family = error_with("llama", "model_type", "\"mamba\"");
  EXPECT_NE(
      family.find(" is the config of a \"mamba\", but this library has only "),
      std::string::npos)
      << family;
  EXPECT_TRUE(
      family.ends_with("; add the architecture in your program, as "
                       "examples/12_own_architecture.cc does"))
      << family;
  for (const auto& [model, member, value] :
       {std::array{"gpt", "attn_pdrop", "0.5"},
        std::array{"gpt", "reorder_and_upcast_attn", "true"},
        std::array{"gpt", "n_inner", "null"},
        std::array{"llama", "head_dim", "null"},
        std::array{"llama", "sliding_window", "5"},
        std::array{"llama", "head_dim", "8"},
        std::array{"llama", "attention_bias", "true"},
        std::array{"llama", "tie_word_embeddings", "true"},
        std::array{"llama", "rope_parameters",
                   "{\"partial_rotary_factor\":0.5}"},
        std::array{"qwen2", "use_sliding_window", "true"},
        std::array{"qwen2", "sliding_window", "4"},
        std::array{"qwen2", "max_window_layers", "28"},
        std::array{"mixtral", "pad_token_id", "3"}})
    EXPECT_EQ(error_with(model, member, value), "no error");
  EXPECT_EQ(error_with("llama", "num_key_value_heads", "4").substr(0, 47),
            "[model] heads 6 is not a multiple of kv-heads 4");
  EXPECT_EQ(error_with("gpt", "n_inner", "null"), "no error");
  EXPECT_EQ(read_config(path).ffn_size(), 96);
}

// The file has the names that transformers has for types.
TEST_F(Pretrained, ComesBackInItsType) {
  const std::pair<DType, const char*> types[] = {{DType::kF32, "float32"},
                                                 {DType::kF64, "float64"},
                                                 {DType::kBF16, "bfloat16"},
                                                 {DType::kF16, "float16"}};
  for (const auto& [t, name] : types) {
    ModelConfig config = tiny("llama");
    config.dtype = t;
    const std::string dir = save("tp=2", config);
    EXPECT_EQ(nlohmann::json::parse(bytes(dir + "/config.json"))["dtype"],
              name);
    on_mesh<int>("tp=3", [&, t = t](const Mesh& m) {
      const auto want = make_model(config, m, 3), got = from_pretrained(dir, m);
      for (const NamedParameter& p : want->named_parameters()) {
        EXPECT_EQ(got->parameter(p.name).dtype(), t) << p.name;
        EXPECT_EQ(values(got->parameter(p.name)), values(p.tensor)) << p.name;
      }
      const auto wide = from_pretrained(dir, m, {.dtype = DType::kF64});
      EXPECT_EQ(wide->parameters()[0].dtype(), DType::kF64);
      EXPECT_EQ(values(wide->parameters()[0]), values(want->parameters()[0]));
      return 0;
    });
  }
}

// A model with int8 weights computes what the same model computes if its
// matrices are rounded to multiples of the scales. That holds on every mesh,
// and whichever way files keep matrices.
TEST_F(Pretrained, Int8WeightsStandForFloats) {
  for (const char* name : {"llama", "gpt", "gpt-neox", "mixtral", "bert-mlm"}) {
    const std::string dir = save("dp=1", tiny(name));
    std::map<std::string, Values> one;  // values on one rank
    for (const char* mesh : {"dp=1", "tp=2", "tp=3", "dp=2,tp=2", "pp=2,tp=2"})
      on_mesh<int>(mesh, [&](const Mesh& m) {
        const NoGrad no_grad;
        const bool first = m.num_ranks() == 1;
        const auto got = from_pretrained(dir, m, {.int8_weights = true}),
                   want = from_pretrained(dir, m);
        size_t matrices = 0;
        for (const NamedParameter& p : want->named_parameters()) {
          const DistTensor q = got->parameter(p.name);
          const bool stays = q.dtype() == DType::kF32;
          matrices += !stays;
          if (stays || !q.here()) continue;
          EXPECT_EQ(q.dtype(), DType::kI8) << p.name;
          EXPECT_EQ(q.layout(), p.tensor.layout()) << p.name;
          const DistTensor scale = got->parameter(p.name + "_scale"),
                           value = cast(q, DType::kF32) *
                                   view(scale, {scale.size(0), 1});
          for (const auto& [key, x] :
               {std::pair(p.name, &q), {p.name + "_scale", &scale}}) {
            if (first) one[key] = values(*x);
            EXPECT_EQ(values(*x), one[key]) << key << " on " << mesh;
          }
          const DistTensor off =
              abs(p.tensor - value) / view(scale, {scale.size(0), 1});
          EXPECT_LE(amax(off).item(), 0.501) << p.name;
          assign(p.tensor, value);
        }
        EXPECT_EQ(matrices, got->named_parameters().size() -
                                want->named_parameters().size());
        EXPECT_GE(matrices, 8u);
        const int32_t ids[] = {1, 5, 2, 9, 3, 3, 0, 7};
        const DistTensor tokens =
            DistTensor::from_global(Tensor::from({2, 4}, ids), m, {});
        const Values x = values(got->logits(tokens)),
                     y = values(want->logits(tokens));
        for (size_t i = 0; i < x.size(); ++i)
          EXPECT_NEAR(x[i], y[i], 1e-5) << name << " on " << mesh;
        return 0;
      });
  }
}

TEST_F(Pretrained, Int8WeightsAreNotTrainedOrSaved) {
  const std::string dir = save("dp=1", tiny("llama"));
  on_mesh<int>("tp=2", [&](const Mesh& m) {
    const auto model = from_pretrained(dir, m, {.int8_weights = true});
    EXPECT_EQ(error_of([&] { save_pretrained(*model, dir); }),
              "[save] model.layers.0.self_attn.q_proj.weight became int8 when "
              "it was loaded, and transformers' files hold floats; load the "
              "model without int8_weights to save it");
    EXPECT_EQ(error_of([&] {
                model->parameter("lm_head.weight").set_requires_grad();
              }),
              "[set_requires_grad] i8[17, 24](S0) cannot have a gradient; cast "
              "it to f32, f64, bf16 or f16");
    // A layer of one's own that takes the weight alone would lack its scale.
    const std::string error = error_of([&] {
      model->replace("model.layers.0.self_attn.q_proj", [](const Scope& at,
                                                           const Module& old) {
        const auto& base = dynamic_cast<const Linear&>(old);
        return std::make_unique<Linear>(at, base.weight(), base.bias());
      });
    });
    EXPECT_TRUE(error.starts_with("[linear] the weight is i8[")) << error;
    EXPECT_TRUE(error.ends_with("pass a weight of a float type")) << error;
    return 0;
  });
}

TEST_F(Pretrained, AFileInTheWayIsAnError) {
  const std::string to = (dir_ / "file").string();
  std::ofstream(to) << "x";
  EXPECT_THROW(on_mesh<int>("dp=2",
                            [&](const Mesh& m) {
                              save_pretrained(*make_model(tiny("gpt"), m), to);
                              return 0;
                            }),
               Error);
}

TEST_F(Pretrained, ADryRunWritesNothing) {
  RunOptions options;
  options.world = 4;
  options.dry_run = true;
  const std::string to = (dir_ / "dry").string();
  run(options, [&](Runtime& rt) {
    save_pretrained(*make_model(tiny("gpt"), rt.mesh({{"tp", 4}})), to);
  });
  EXPECT_FALSE(fs::exists(to));
}

TEST_F(Pretrained, ADryRunNeedsOnlyTheConfig) {
  const fs::path only = dir_ / "only";
  fs::create_directories(only);
  fs::copy_file("tests/nn/data/llama/config.json", only / "config.json");
  const auto load = [&](bool dry) {
    RunOptions options;
    options.world = 3;
    options.dry_run = dry;
    run(options, [&](Runtime& rt) {
      const auto model = from_pretrained(only.string(), rt.mesh({{"tp", 3}}));
      EXPECT_EQ(model->config().vocab, 251);
      EXPECT_GT(model->named_parameters().size(), 10u);
    });
  };
  load(true);
  EXPECT_THROW(load(false), Error);
  // A dry run reads the header of a file if it is there.
  std::ofstream(only / "model.safetensors") << "no header";
  EXPECT_THROW(load(true), Error);
}

// Older files of GPT-NeoX have members of their own; those of Mistral may have
// a window in some layers only.
TEST_F(Pretrained, ConfigsOfOlderFilesAndMixedWindows) {
  const std::string path = (dir_ / "older").string();
  const auto read = [&](const nlohmann::json& json) {
    std::ofstream(path) << json.dump();
    return read_config(path);
  };
  auto neox = nlohmann::json::parse(config_text(tiny("gpt-neox")));
  EXPECT_EQ(neox["rotary_pct"], 1);
  EXPECT_EQ(neox["rotary_emb_base"], 10000);
  neox.erase("rope_parameters");
  neox["hidden_size"] = 48;
  neox.erase("rotary_pct");
  EXPECT_EQ(read(neox).rope.dims,
            2);  // of 8; transformers' default is a quarter
  neox["rotary_pct"] = 0.5;
  neox["rotary_emb_base"] = 500;
  EXPECT_EQ(read(neox).rope.dims, 4);
  EXPECT_EQ(read(neox).rope.theta, 500);
  for (const double part : {0.0, 0.1, 1.5, -0.5}) {
    neox["rotary_pct"] = part;
    EXPECT_NE(error_of([&] { read(neox); })
                  .find(" of its 8 numbers; write a rotary_pct or "
                        "partial_rotary_factor that makes"),
              std::string::npos)
        << part;
  }
  ModelConfig mistral = tiny("mistral");
  mistral.window = 3;
  mistral.windowed = {true, false};
  const ModelConfig back = read(nlohmann::json::parse(config_text(mistral)));
  EXPECT_EQ(back.windowed, mistral.windowed);
  auto many = nlohmann::json::parse(config_text(tiny("gemma2")));
  many.erase("layer_types");
  many["sliding_window"] = 3;
  many["num_hidden_layers"] = int64_t{1} << 60;
  EXPECT_NE(error_of([&] { read(many); }).find("at most 100000"),
            std::string::npos);
}

// A checkpoint of transformers that is read and written has the same tensors.
TEST_F(Pretrained, EveryFamilyIsWrittenBack) {
  int families = 0;
  for (const auto& entry : fs::directory_iterator("tests/nn/data")) {
    if (!entry.is_directory()) continue;
    ++families;
    const std::string from = entry.path().string(),
                      to = (dir_ / entry.path().filename()).string();
    on_mesh<int>("dp=2,tp=3", [&](const Mesh& m) {
      save_pretrained(*from_pretrained(from, m), to);
      return 0;
    });
    on_mesh<int>("dp=1", [&](const Mesh&) {
      const SafetensorsReader want(from + "/model.safetensors"),
          got(to + "/model.safetensors");
      for (const TensorInfo& t : want.tensors())
        EXPECT_TRUE(values(got.read(t.name)) == values(want.read(t.name)))
            << from << " " << t.name;
      EXPECT_EQ(got.tensors().size(), want.tensors().size()) << from;
      return 0;
    });
    // All members that decide what is computed are the same.
    const ModelConfig one = read_config(from + "/config.json"),
                      two = read_config(to + "/config.json");
    EXPECT_EQ(config_text(one), config_text(two)) << from;
    // The members that transformers reads are the same, too. Null stands for a
    // default. Dropout and the router's loss matter only to its training.
    auto theirs = nlohmann::json::parse(bytes(from + "/config.json"));
    const auto ours = nlohmann::json::parse(bytes(to + "/config.json"));
    if (theirs.contains("rope_parameters") &&
        theirs["rope_parameters"].value("partial_rotary_factor", 0.0) == 1)
      theirs["rope_parameters"].erase("partial_rotary_factor");
    for (const auto& [key, value] : ours.items())
      if (theirs.contains(key) && !theirs[key].is_null() &&
          key.find("drop") == key.npos && key != "router_aux_loss_coef") {
        EXPECT_EQ(value, theirs[key]) << from << " " << key;
      }
  }
  EXPECT_GE(families, 14);
}

// The integers would be taken for weights, and their scales would be missing.
TEST_F(Pretrained, RefusesWeightsOfIntegers) {
  const std::string from = save("dp=1", tiny("llama")),
                    to = (dir_ / "integers").string();
  fs::create_directories(to);
  fs::copy_file(from + "/config.json", to + "/config.json");
  on_mesh<int>("tp=2", [&](const Mesh& m) {
    const SafetensorsReader all(from + "/model.safetensors");
    std::vector<TensorInfo> infos = all.tensors();
    for (TensorInfo& t : infos)
      if (t.shape.size() == 2) t.dtype = DType::kI8;
    SafetensorsWriter file(m, to + "/model.safetensors", infos);
    for (const TensorInfo& t : infos)
      file.write(t.name, cast(all.read(t.name, m, {}), t.dtype));
    file.finish();
    for (const bool int8 : {false, true})
      EXPECT_NE(
          error_of([&] { from_pretrained(to, m, {.int8_weights = int8}); })
              .find("is i8, but only weights that are stored as floats are "
                    "read; save them as floats"),
          std::string::npos);
    return 0;
  });
}

TEST_F(Pretrained, SeveralFilesWithAnIndex) {
  const ModelConfig config = tiny("llama");
  const std::string from = save("dp=1", config), to = (dir_ / "parts").string();
  fs::create_directories(to);
  fs::copy_file(from + "/config.json", to + "/config.json");
  nlohmann::json index = {{"metadata", {{"total_size", 1}}}};
  on_mesh<int>("dp=1", [&](const Mesh& m) {
    const SafetensorsReader all(from + "/model.safetensors");
    const char* files[] = {"model-00001-of-00002.safetensors",
                           "model-00002-of-00002.safetensors"};
    for (size_t i = 0; i < 2; ++i) {
      std::vector<TensorInfo> infos;
      for (size_t t = i; t < all.tensors().size(); t += 2) {
        infos.push_back(all.tensors()[t]);
        index["weight_map"][infos.back().name] = files[i];
      }
      SafetensorsWriter part(m, to + "/" + files[i], infos);
      for (const TensorInfo& t : infos)
        part.write(t.name, all.read(t.name, m, {}));
      part.finish();
    }
    return 0;
  });
  const auto write_index = [&] {
    std::ofstream(to + "/model.safetensors.index.json") << index.dump();
  };
  write_index();
  on_mesh<int>("tp=3", [&](const Mesh& m) {
    const auto want = make_model(config, m, 3), got = from_pretrained(to, m);
    for (const NamedParameter& p : want->named_parameters())
      EXPECT_EQ(values(got->parameter(p.name)), values(p.tensor)) << p.name;
    return 0;
  });
  const auto refused = [&] {
    return error_of([&] {
      on_mesh<int>("dp=1", [&](const Mesh& m) {
        from_pretrained(to, m);
        return 0;
      });
    });
  };
  const auto whole = index;
  index["weight_map"]["lm_head.weight"] = "../elsewhere.safetensors";
  write_index();
  EXPECT_NE(refused().find("write the name of a file in the same folder"),
            std::string::npos)
      << refused();
  index = whole;
  index["weight_map"]["model.norm.bias"] = "model-00001-of-00002.safetensors";
  write_index();
  EXPECT_NE(refused().find("but that file does not have it"), std::string::npos)
      << refused();
  index = "text";
  write_index();
  EXPECT_NE(refused().find("an object \"weight_map\""), std::string::npos)
      << refused();
}

}  // namespace
}  // namespace dtensor::nn
