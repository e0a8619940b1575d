// SPDX-License-Identifier: Apache-2.0
// Compares models in a pipeline with the same models on one rank.
#include "dtensor/nn/pipeline_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "dtensor/nn/architecture.h"
#include "dtensor/nn/models.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/array.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

using testing::error_of;
using testing::values;

constexpr int64_t kRows = 9;

ModelConfig config_of(const std::string& name, int64_t layers = 5) {
  ModelConfig c{.name = name,
                .layers = layers,
                .hidden = 12,
                .heads = 3,
                .kv_heads = name == "gpt" ? 0 : 1,
                .ffn = 10,
                .seq = 6,
                .vocab = 11,
                .dtype = DType::kF64};
  if (name == "mixtral") {
    c.experts = 5;
    c.router_loss = 0.1;
  }
  return c;
}

Tensor numbers(int64_t stream, const ModelConfig& c) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < kRows * c.seq; ++i)
    values.push_back((i * i + 7 * i * stream + 3 * stream) % c.vocab);
  return Tensor::from<int64_t>({kRows, c.seq}, values.data());
}

// Counts the flops of matrix products only. A block takes 1, the head its flops
// divided by those of a block.
TEST(PipelineModel, StageTimes) {
  const ModelConfig config = config_of("gpt");
  const PipelineCut cut = cut_pipeline(config, Mesh::parse("pp=3"));
  const ForwardFlops flops = forward_flops(config);
  const std::vector<StageTimes> times = stage_times(config, cut);
  ASSERT_EQ(times.size(), 3u);
  double blocks = 0;
  for (size_t s = 0; s < 3; ++s) {
    const double head = s == 2 ? flops.head / flops.block : 0;
    EXPECT_EQ(times[s].forward,
              static_cast<double>(cut.first_block[s + 1] - cut.first_block[s]) +
                  head);
    EXPECT_EQ(times[s].backward, times[s].forward);
    EXPECT_EQ(times[s].weight, times[s].forward);
    blocks += times[s].forward - head;
  }
  EXPECT_NEAR(blocks, 5, 1e-12);
}

struct Values {
  double loss = 0;
  std::map<std::string, std::vector<double>> grads;
};

// The rows of a micro-batch. share() is their part of all rows.
struct Rows {
  int64_t lo, hi;
  double share() const { return static_cast<double>(hi - lo) / kRows; }
};
Rows rows_of(int64_t i, int64_t micros) {
  return {i * kRows / micros, (i + 1) * kRows / micros};
}

// Computes each micro-batch by itself, as a mixtral balances its experts in
// each.
Values on_one_rank(const ModelConfig& config, int64_t micros = 1) {
  Values v;
  run(1, [&](Runtime&) {
    const Mesh m = Mesh::parse("dp=1");
    const auto model = make_model(config, m, 5);
    DistTensor loss;
    for (int64_t i = 0; i < micros; ++i) {
      const Rows rows = rows_of(i, micros);
      const auto cut = [&](int64_t stream) {
        return DistTensor::from_global(
            numbers(stream, config).slice(0, rows.lo, rows.hi), m, {});
      };
      const DistTensor part = model->loss(cut(1), cut(2)) * rows.share();
      loss = loss.defined() ? loss + part : part;
    }
    v.loss = loss.item();
    const auto grads = grad(loss, model->parameters());
    const auto named = model->named_parameters();
    for (size_t i = 0; i < grads.size(); ++i)
      v.grads[named[i].name] = values(grads[i]);
  });
  return v;
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b,
                 const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-11) << what;
}

void check(const ModelConfig& config, const Values& expected,
           const std::string& mesh_text, const std::string& schedule,
           int64_t micros, int64_t chunks = 1,
           Recompute recompute = Recompute::kNone, int zero_stage = 0) {
  const Mesh mesh = Mesh::parse(mesh_text);
  const std::string what = config.name + " " + schedule + " on " + mesh_text +
                           " of " + std::to_string(micros);
  run(mesh.num_ranks(), [&](Runtime&) {
    ParallelPlan plan = default_plan(config, mesh);
    plan.pipeline_chunks = chunks;
    if (zero_stage) plan = zero(std::move(plan), zero_stage);
    const auto model = make_model(config, mesh, plan, 5);
    model->set_recompute(recompute);
    const PipelineCut cut = cut_pipeline(config, mesh, chunks);
    const Mesh first = cut.meshes.front(), last = cut.meshes.back();
    std::vector<DistTensor> inputs, targets;
    std::vector<double> shares;
    for (int64_t i = 0; i < micros; ++i) {
      const Rows rows = rows_of(i, micros);
      const auto cut = [&](int64_t stream, const Mesh& on) {
        return DistTensor::from_global(
            numbers(stream, config).slice(0, rows.lo, rows.hi), on,
            batch_placements(on));
      };
      inputs.push_back(cut(1, first));
      targets.push_back(cut(2, last));
      shares.push_back(rows.share());
    }
    const auto stages = pipeline_stages(*model, cut, [&](int64_t m) {
      return targets[static_cast<size_t>(m)];
    });
    Pipeline pipe(make_schedule(schedule, mesh.axis_size(mesh.axis("pp")),
                                micros, chunks),
                  stages);
    const PipelineResult r =
        pipe.run(inputs, shares, {.bucket_bytes = zero_stage < 2 ? 0 : 500});
    if (last.mesh_rank_of(RankContext::current().world_rank) >= 0) {
      double loss = 0;
      for (int64_t i = 0; i < micros; ++i)
        loss += r.losses[static_cast<size_t>(i)].item() *
                shares[static_cast<size_t>(i)];
      EXPECT_NEAR(loss, expected.loss, 1e-11) << what;
    }
    size_t seen = 0;
    for (const NamedParameter& p : model->named_parameters()) {
      const auto s = static_cast<size_t>(cut.stage_of(p.name));
      for (size_t k = 0; k < stages[s].parameters.size(); ++k) {
        if (!stages[s].parameters[k].same_as(p.tensor)) continue;
        ++seen;
        if (p.tensor.here())
          expect_near(values(r.grads[s][k]), expected.grads.at(p.name),
                      what + ", " + p.name);
      }
    }
    EXPECT_EQ(seen, expected.grads.size());
  });
}

TEST(PipelineModel, EverySchedule) {
  for (const char* name : {"gpt", "llama"}) {
    const ModelConfig config = config_of(name);
    const Values expected = on_one_rank(config);
    for (int64_t p = 2; p <= 5; ++p)
      for (const int64_t m : {1, 2, 5, 7})
        for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "zb-h2"})
          check(config, expected, "pp=" + std::to_string(p), schedule, m);
  }
}

TEST(PipelineModel, WithDataAndTensorParallelism) {
  for (const char* name : {"gpt", "llama"}) {
    const ModelConfig config = config_of(name);
    const Values expected = on_one_rank(config);
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "zb-h2"})
      check(config, expected, "pp=2,dp=2,tp=2", schedule, 3);
    check(config, expected, "tp=2,pp=2", "interleaved", 5, 2);
    check(config, expected, "pp=1,dp=2", "interleaved", 2, 3);
    check(config, expected, "pp=2,dp=1", "zb-h1", 3, 1, Recompute::kBlock);
    check(config, expected, "pp=2,dp=1", "1f1b", 3, 1, Recompute::kAttention);
  }
}

// Ranks of the next stage have to know the layout in which this stage ends. A
// large product ends in a reduce-scatter if no gradient will be taken.
TEST(PipelineModel, StagesAgreeOnLayoutsOfLargeProducts) {
  ModelConfig config = config_of("gpt");
  config.hidden = 256;
  config.heads = 4;
  config.seq = 66;
  check(config, on_one_rank(config), "pp=2,dp=2,tp=4", "1f1b", 2);
}

// The loads of routers go through the stages with the activations.
TEST(PipelineModel, Experts) {
  const ModelConfig config = config_of("mixtral");
  for (const int64_t m : {1, 3}) {
    const Values expected = on_one_rank(config, m);
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "zb-h2"}) {
      check(config, expected, "pp=2,ep=2", schedule, m);
      check(config, expected, "pp=5", schedule, m);
    }
    check(config, expected, "pp=2,ep=3,tp=2", "1f1b", m);
    check(config, expected, "dp=2,pp=2,ep=2", "zb-h1", m);
    check(config, expected, "pp=2,ep=2", "1f1b", m, 1, Recompute::kBlock);
    check(config, expected, "pp=2,ep=2", "zb-h1", m, 1, Recompute::kAttention);
  }
  check(config, on_one_rank(config, 4), "ep=2,pp=2", "interleaved", 4, 2);
  ModelConfig unbalanced = config;
  unbalanced.router_loss = 0;
  check(unbalanced, on_one_rank(unbalanced), "pp=3,ep=2", "1f1b", 2);
}

// ZeRO splits the parameters of each stage on the stage's mesh.
TEST(PipelineModel, Zero) {
  for (const char* name : {"gpt", "llama"}) {
    const ModelConfig config = config_of(name);
    const Values expected = on_one_rank(config);
    for (const int zero : {1, 2, 3}) {
      for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "zb-h2"})
        check(config, expected, "pp=2,dp=3", schedule, 3, 1, Recompute::kNone,
              zero);
      check(config, expected, "dp=2,pp=2,tp=2", "1f1b", 3, 1, Recompute::kBlock,
            zero);
      check(config, expected, "dp=2,pp=2", "interleaved", 3, 2,
            Recompute::kNone, zero);
    }
  }
  const ModelConfig config = config_of("mixtral");
  check(config, on_one_rank(config, 3), "pp=2,dp=2,ep=2", "zb-h1", 3, 1,
        Recompute::kNone, 3);
}

// Without a schedule, a model in stages can be used like any other.
TEST(PipelineModel, WithoutASchedule) {
  for (const char* name : {"gpt", "llama", "mixtral"}) {
    const ModelConfig config = config_of(name);
    const Values expected = on_one_rank(config);
    const Mesh mesh = Mesh::parse("pp=3,dp=2");
    run(6, [&](Runtime&) {
      const auto model = make_model(config, mesh, 5);
      const auto on = [&](int64_t which) {
        return DistTensor::from_global(numbers(which, config), mesh,
                                       batch_placements(mesh));
      };
      const DistTensor loss = model->loss(on(1), on(2));
      EXPECT_NEAR(loss.item(), expected.loss, 1e-11);
      EXPECT_EQ(model->logits(on(1)).mesh(), mesh);
      const auto grads = grad(loss, model->parameters());
      const auto named = model->named_parameters();
      for (size_t i = 0; i < named.size(); ++i)
        if (named[i].tensor.here())
          expect_near(values(grads[i]), expected.grads.at(named[i].name),
                      named[i].name);
    });
  }
}

TEST(PipelineModel, Cuts) {
  ModelConfig config = config_of("gpt", 7);
  config.vocab = 1;
  PipelineCut cut = cut_pipeline(config, Mesh::parse("dp=2,pp=3,tp=2"));
  EXPECT_EQ(cut.first_block, (std::vector<int64_t>{0, 3, 5, 7}));
  EXPECT_EQ(cut.meshes[1].to_string(), "dp=2,pp=1,tp=2 of ranks 2,3,8,9");
  EXPECT_EQ(cut.stage_of("transformer.wpe.weight"), 0);
  EXPECT_EQ(cut.stage_of("transformer.h.2.ln_1.weight"), 0);
  EXPECT_EQ(cut.stage_of("transformer.h.3"), 1);
  EXPECT_EQ(cut.stage_of("transformer.h.5.attn"), 2);
  EXPECT_EQ(cut.stage_of("transformer.ln_f.weight"), 2);
  EXPECT_EQ(cut.stage_of("lm_head.weight"), 2);
  EXPECT_EQ(cut_pipeline(config_of("llama"), Mesh::parse("pp=3"))
                .stage_of("model.embed_tokens.weight"),
            0);
  cut = cut_pipeline(config, Mesh::parse("pp=2"), 2);
  EXPECT_EQ(cut.meshes[3].to_string(), "pp=1 of ranks 1");
  EXPECT_EQ(cut.stages(), 4);
  // If the head costs as much as many blocks, its stage has one block.
  const ForwardFlops flops = forward_flops(config);
  // q, k, v, o: 12 x 12 each; two products of 12 x 10; scores over 3 keys on
  // average.
  EXPECT_EQ(flops.block, 2 * (4 * 144 + 2 * 120) + 2 * 2 * 3 * 12);
  EXPECT_EQ(flops.head, 2 * 12);
  // A token uses two of five experts, of three matrices each; there is one kv
  // head.
  EXPECT_EQ(forward_flops(config_of("mixtral")).block,
            2 * (2 * 144 + 2 * 12 * 4 + 2 * 3 * 120 + 12 * 5) + 2 * 6 * 12);
  config.vocab = 10000;
  cut = cut_pipeline(config, Mesh::parse("pp=2"));
  EXPECT_EQ(cut.first_block, (std::vector<int64_t>{0, 6, 7}));
  EXPECT_EQ(error_of([&] { cut_pipeline(config, Mesh::parse("pp=4"), 2); }),
            "[pipeline] 8 stages (4 along pp, times 2 for chunks) need as many "
            "blocks, but the model has 7; make pp or the number of chunks "
            "smaller, or use a model with at least 8 blocks");
  // 4 * 2^62 is 0 in 64 bits.
  EXPECT_EQ(error_of([&] {
              cut_pipeline(config, Mesh::parse("pp=4"), int64_t{1} << 62);
            }),
            "[pipeline] there are 4611686018427387904 chunks at each place "
            "along pp, but the model has 7 blocks; write 1 to 7");
}

// Guards a fix: cut_pipeline() on a mesh without an axis for stages read the
// size of an axis that does not exist.

// Names of an architecture's own may have digits in front of a block's number.
TEST(PipelineModel, FindsBlocksByTheArchitecture) {
  Architecture own = architecture("llama");
  own.name = "own2", own.class_name = "Own2ForCausalLM";
  own.model_types = {"own2"};
  own.embedding = "net2.tokens6";
  own.blocks = "net2.layers";
  add_architecture(own);
  ModelConfig config = config_of("own2", 7);
  const PipelineCut cut = cut_pipeline(config, Mesh::parse("pp=3"));
  EXPECT_EQ(cut.first_block, (std::vector<int64_t>{0, 3, 5, 7}));
  EXPECT_EQ(cut.stage_of("net2.tokens6.weight"), 0);
  EXPECT_EQ(cut.stage_of("net2.layers.0.mlp"), 0);
  EXPECT_EQ(cut.stage_of("net2.layers.6.mlp"), 2);
  EXPECT_EQ(cut.stage_of("model.norm.weight"), 2);
}

TEST(PipelineCutWithoutStages, IsRefused) {
  EXPECT_EQ(
      testing::error_of([] { nn::cut_pipeline({}, Mesh::parse("dp=2")); }),
      "[pipeline] mesh dp=2 has no axis pp for stages; make one with "
      "pp=2 or the like");
}

}  // namespace
}  // namespace dtensor::nn
