// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/module.h"

#include <gtest/gtest.h>

#include <cmath>

#include "dtensor/nn/layers.h"
#include "dtensor/nn/models.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/placement/error.h"
#include "tests/nn/on_mesh.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

ModelConfig tiny(const std::string& name) {
  return {.name = name,
          .layers = 2,
          .hidden = 12,
          .heads = 3,
          .seq = 6,
          .vocab = 20};
}

struct Row {
  std::string name, spec;
  bool operator==(const Row&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Row& r) {
  return out << r.name << " " << r.spec << "\n";
}

std::vector<Row> rows(const std::string& mesh, const ModelConfig& config) {
  return on_mesh<std::vector<Row>>(mesh, [&](const Mesh& m) {
    std::vector<Row> out;
    const auto model = make_model(config, m);
    for (const NamedParameter& p : model->named_parameters())
      out.push_back({p.name, p.tensor.spec()->to_string()});
    return out;
  });
}

TEST(Module, ParametersOfGpt) {
  const ModelConfig config{
      .layers = 1, .hidden = 8, .heads = 2, .seq = 6, .vocab = 10};
  const std::string h = "transformer.h.0.";
  const std::vector<Row> expected = {
      {"transformer.wte.weight", "f32[10, 8](R,S0)"},
      {"transformer.wpe.weight", "f32[6, 8](R,R)"},
      {h + "ln_1.weight", "f32[8](R,R)"},
      {h + "ln_1.bias", "f32[8](R,R)"},
      {h + "attn.q_proj.weight", "f32[8, 8](R,S0)"},
      {h + "attn.q_proj.bias", "f32[8](R,S0)"},
      {h + "attn.k_proj.weight", "f32[8, 8](R,S0)"},
      {h + "attn.k_proj.bias", "f32[8](R,S0)"},
      {h + "attn.v_proj.weight", "f32[8, 8](R,S0)"},
      {h + "attn.v_proj.bias", "f32[8](R,S0)"},
      {h + "attn.o_proj.weight", "f32[8, 8](R,S1)"},
      {h + "attn.o_proj.bias", "f32[8](R,R)"},
      {h + "ln_2.weight", "f32[8](R,R)"},
      {h + "ln_2.bias", "f32[8](R,R)"},
      {h + "mlp.c_fc.weight", "f32[32, 8](R,S0)"},
      {h + "mlp.c_fc.bias", "f32[32](R,S0)"},
      {h + "mlp.c_proj.weight", "f32[8, 32](R,S1)"},
      {h + "mlp.c_proj.bias", "f32[8](R,R)"},
      {"transformer.ln_f.weight", "f32[8](R,R)"},
      {"transformer.ln_f.bias", "f32[8](R,R)"},
  };
  EXPECT_EQ(rows("dp=2,tp=2", config), expected);
}

TEST(Module, ParametersOfLlama) {
  const ModelConfig config{.name = "llama",
                           .layers = 1,
                           .hidden = 8,
                           .heads = 2,
                           .kv_heads = 1,
                           .ffn = 12,
                           .seq = 6,
                           .vocab = 10};
  const std::string h = "model.layers.0.";
  const std::vector<Row> expected = {
      {"model.embed_tokens.weight", "f32[10, 8](S0)"},
      {h + "input_layernorm.weight", "f32[8](R)"},
      {h + "self_attn.q_proj.weight", "f32[8, 8](S0)"},
      {h + "self_attn.k_proj.weight", "f32[4, 8](S0/4)"},
      {h + "self_attn.v_proj.weight", "f32[4, 8](S0/4)"},
      {h + "self_attn.o_proj.weight", "f32[8, 8](S1)"},
      {h + "post_attention_layernorm.weight", "f32[8](R)"},
      {h + "mlp.gate_proj.weight", "f32[12, 8](S0)"},
      {h + "mlp.up_proj.weight", "f32[12, 8](S0)"},
      {h + "mlp.down_proj.weight", "f32[8, 12](S1)"},
      {"model.norm.weight", "f32[8](R)"},
      {"lm_head.weight", "f32[10, 8](S0)"},
  };
  EXPECT_EQ(rows("tp=2", config), expected);
}

TEST(Module, TheSameWeightsOnEveryMesh) {
  for (const char* name : {"gpt", "llama"}) {
    const ModelConfig config{.name = name,
                             .layers = 1,
                             .hidden = 12,
                             .heads = 6,
                             .seq = 5,
                             .vocab = 11};
    const auto weights = [&](const std::string& mesh) {
      return on_mesh<std::vector<std::vector<double>>>(
          mesh, [&](const Mesh& m) {
            std::vector<std::vector<double>> out;
            for (const DistTensor& p : make_model(config, m, 7)->parameters())
              out.push_back(values(p));
            return out;
          });
    };
    const auto one = weights("dp=1");
    for (const std::string& mesh : test_meshes())
      EXPECT_EQ(weights(mesh), one) << name << " on " << mesh;
    EXPECT_EQ(weights("tp=8"), one);
  }
}

TEST(Module, AParameterIsMadeInItsLayout) {
  const auto make = [](const char* mesh, const char* layout, const char* name,
                       uint64_t seed) {
    return on_mesh<std::vector<double>>(mesh, [&](const Mesh& m) {
      const DistTensor p =
          make_parameter(name, {5, 3}, m, Placements(layout).resolve(m, {5, 3}),
                         DType::kF64, Init::normal(0.5), seed);
      EXPECT_EQ(p.layout().to_string(m), layout);
      EXPECT_NE(p.keep(), Keep::kMove);
      return values(p);
    });
  };
  const std::vector<double> one = make("tp=1", "R", "a", 7);
  EXPECT_EQ(make("tp=3", "S0", "a", 7), one);
  EXPECT_EQ(make("dp=2,tp=2", "S1,S0", "a", 7), one);
  EXPECT_NE(make("tp=3", "S0", "b", 7), one);
  EXPECT_NE(make("tp=3", "S0", "a", 8), one);
}

TEST(Module, InitialisedFromGlobalFanIn) {
  const auto std_of = [](const std::vector<double>& v) {
    double sum = 0;
    for (double x : v) sum += x * x;
    return std::sqrt(sum / static_cast<double>(v.size()));
  };
  const ModelConfig config{.layers = 1, .hidden = 64, .heads = 4, .seq = 32};
  on_mesh<int>("tp=2", [&](const Mesh& m) {
    const auto model = make_model(config, m);
    const auto value = [&](const char* name) {
      return values(model->parameter(name));
    };
    const std::string h = "transformer.h.0.";
    EXPECT_NEAR(std_of(value("transformer.wte.weight")), 0.02, 1e-3);
    EXPECT_NEAR(std_of(value("transformer.h.0.mlp.c_fc.weight")), 1. / 8, 5e-3);
    EXPECT_NEAR(std_of(value("transformer.h.0.mlp.c_proj.weight")), 1. / 16,
                3e-3);
    EXPECT_EQ(value("transformer.ln_f.weight"), std::vector<double>(64, 1));
    EXPECT_EQ(value("transformer.h.0.mlp.c_fc.bias"),
              std::vector<double>(256, 0));
    EXPECT_NE(value("transformer.h.0.attn.q_proj.weight"),
              value("transformer.h.0.attn.k_proj.weight"));
    return 0;
  });
}

TEST(Module, EveryDtypeStartsFromTheSameNumbers) {
  const auto wte = [](DType t) {
    return on_mesh<std::vector<double>>("dp=1", [&](const Mesh& m) {
      const ModelConfig config{
          .layers = 1, .hidden = 8, .heads = 2, .seq = 4, .dtype = t};
      return values(make_model(config, m)->parameters().front());
    });
  };
  const auto f32 = wte(DType::kF32);
  EXPECT_EQ(wte(DType::kF64), f32);
  const auto half = wte(DType::kBF16);
  for (size_t i = 0; i < half.size(); ++i)
    EXPECT_NEAR(half[i], f32[i], std::abs(f32[i]) / 128);
}

TEST(Module, Errors) {
  on_mesh<int>("tp=2", [](const Mesh& m) {
    const ModelConfig config{.layers = 1, .hidden = 8, .heads = 2, .seq = 4};
    EXPECT_THROW(make_model(config, m, {{"*.c_fx.*", {{"tp", Shard(0)}}}}),
                 Error);
    const auto model = make_model(config, m);
    EXPECT_THROW(model->parameter("wte"), Error);
    return 0;
  });
}

TEST(Module, ADryRunMakesTheSpecsWithoutMemory) {
  const ModelConfig config{.name = "llama",
                           .layers = 2,
                           .hidden = 8192,
                           .heads = 64,
                           .kv_heads = 8,
                           .seq = 8192,
                           .vocab = 128256};
  RunOptions options;
  options.world = 4096;
  options.dry_run = true;
  run(options, [&](Runtime& rt) {
    const auto model = make_model(config, rt.mesh({{"dp", 512}, {"tp", 8}}));
    for (const DistTensor& p : model->parameters())
      EXPECT_EQ(p.local().data(), nullptr);
    EXPECT_EQ(model->parameter("lm_head.weight").local().shape(),
              (Shape{16032, 8192}));
  });
}

// A low-rank adapter that replaces a linear layer: W x + b + B A x. Only A and
// B learn.
class Lora : public Linear {
 public:
  Lora(const Scope& at, const Linear& base, int64_t rank)
      : Linear(at, base.weight(), base.bias()),
        a_(add_parameter("lora_a", {rank, base.weight().size(1)},
                         Init::fan_in(base.weight().size(1)))),
        b_(add_parameter("lora_b", {base.weight().size(0), rank},
                         Init::zeros())) {}
  DistTensor forward(const DistTensor& x) const override {
    return Linear::forward(x) +
           einsum("...r,or->...o", {einsum("...i,ri->...r", {x, a_}), b_});
  }

 private:
  DistTensor a_, b_;
};

TEST(Module, AnAdapterTakesThePlaceOfALinearLayer) {
  const auto run_on = [](const std::string& mesh) {
    return on_mesh<std::vector<double>>(mesh, [](const Mesh& m) {
      ModelConfig config = tiny("llama");
      config.dtype = DType::kF64;
      const auto model = make_model(config, m, 3);
      const DistTensor tokens =
          randint(0, config.vocab, {2, 5}, m, {}, DType::kI64, {1, 1});
      const auto before = values(model->logits(tokens));
      for (DistTensor& p : model->parameters()) p.set_requires_grad(false);
      const std::string path = "model.layers.1.self_attn.q_proj";
      model->replace(path, [](const Scope& at, const Module& old) {
        Scope own = at;
        own.plan = nullptr;  // small: on every rank
        return std::make_unique<Lora>(own, dynamic_cast<const Linear&>(old), 2);
      });
      // At first it computes what the layer computed.
      EXPECT_EQ(values(model->logits(tokens)), before);
      const DistTensor b = model->parameter(path + ".lora_b");
      const auto g = grad(model->loss(tokens, tokens), {b});
      assign(b, b - g[0] * 5.0);
      const auto after = values(model->logits(tokens));
      EXPECT_NE(after, before);
      EXPECT_EQ(dynamic_cast<const Lora&>(model->module(path)).weight().shape(),
                model->parameter(path + ".weight").shape());
      return after;
    });
  };
  const auto one = run_on("dp=1");
  const auto two = run_on("tp=2");
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(two[i], one[i], 1e-12);
}

TEST(Module, WhatCannotTakeThePlaceIsRefused) {
  on_mesh<int>("dp=1", [](const Mesh& m) {
    const auto model = make_model(tiny("gpt"), m);
    const auto norm = [](const Scope& at, const Module&) {
      return std::make_unique<LayerNorm>(at, 4);
    };
    const std::string kind = dtensor::testing::error_of(
        [&] { model->replace("transformer.h.0.mlp.c_fc", norm); });
    EXPECT_NE(kind.find("of another class"), kind.npos) << kind;
    const std::string path = dtensor::testing::error_of(
        [&] { model->replace("transformer.h.0.mlp.fc", norm); });
    EXPECT_NE(path.find("transformer.h.0.mlp.c_fc"), path.npos) << path;
    return 0;
  });
}

TEST(Module, APatternThatMatchesNothingIsAnErrorWithTheNames) {
  on_mesh<int>("tp=2", [](const Mesh& m) {
    const std::string error = dtensor::testing::error_of([&] {
      make_model(tiny("gpt"), m, ParallelPlan{{"*.c_fx.weight", "S0"}});
    });
    EXPECT_NE(error.find("\"*.c_fx.weight\" matches no parameter"), error.npos)
        << error;
    EXPECT_NE(error.find("transformer.h.*.mlp.c_fc.weight"), error.npos)
        << error;
    // check_plan() with a model throws the same.
    const auto model = make_model(tiny("gpt"), m);
    EXPECT_EQ(dtensor::testing::error_of([&] {
                check_plan({{"*.c_fx.weight", "S0"}}, *model);
              }),
              error);
    check_plan({{"*.c_fc.weight", "S0"}}, *model);
    return 0;
  });
}

}  // namespace
}  // namespace dtensor::nn
