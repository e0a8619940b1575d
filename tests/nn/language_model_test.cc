// SPDX-License-Identifier: Apache-2.0
// Models that recompute activations: the same losses and gradients from less
// memory, and what the recomputation sends.
#include "dtensor/nn/language_model.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "dtensor/autograd.h"
#include "dtensor/nn/models.h"
#include "dtensor/nn/parallel.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/op.h"
#include "dtensor/runtime.h"
#include "tests/nn/on_mesh.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

using dtensor::testing::error_of;

ModelConfig tiny(const std::string& name) {
  ModelConfig c{.name = name,
                .layers = 3,
                .hidden = 24,
                .heads = 6,
                .seq = 16,
                .vocab = 17,
                .dtype = DType::kF64};
  if (name == "llama") c.kv_heads = 2;
  return c;
}

struct Step {
  double loss = 0;
  std::vector<std::vector<double>> grads;
  int64_t held = 0, peak = 0;  // bytes of activations: after the loss; peak
  // The number of operator calls, and of collectives, by phase.
  std::map<std::string, std::map<std::string, int>> calls;
  std::map<std::string, int> sent;
};

Step step(const std::string& mesh, const std::string& name, Recompute what,
          int zero_stage = 0) {
  return on_mesh<Step>(mesh, [&](const Mesh& m) {
    const ModelConfig config = tiny(name);
    const auto model =
        make_model(config, m, zero(default_plan(config, m), zero_stage), 1);
    model->set_recompute(what);
    EXPECT_EQ(model->recompute(0), what);
    const auto draw = [&](uint64_t stream) {
      return randint(0, 17, {4, config.seq}, m, batch_placements(m),
                     DType::kI64, {5, stream});
    };
    const DistTensor tokens = draw(0), targets = draw(1);
    RankContext& ctx = RankContext::current();
    const auto activations = [&] {
      return ctx.allocator->stats().of(MemoryKind::kActivations);
    };
    Step s;
    const int64_t before = activations().current_bytes;
    ctx.allocator->reset_peak();
    ctx.record = true;
    const OnOp observe(ctx, [&](const OpRan& op) {
      ++s.calls[ctx.phase][std::string(op.op)];
    });
    const DistTensor loss = model->loss(tokens, targets);
    s.held = activations().current_bytes - before;
    const auto grads = grad(loss, model->parameters(), {.release_graph = true});
    s.peak = activations().peak_bytes - before;
    ctx.record = false;
    for (const CommEvent& e : ctx.events) ++s.sent[e.phase];
    s.loss = loss.item();
    for (const DistTensor& g : grads) s.grads.push_back(values(g));
    return s;
  });
}

class Recomputing : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, Recomputing, ::testing::Values("gpt", "llama"));

TEST_P(Recomputing, LossAndGradientsAreEqualBitForBit) {
  for (const char* mesh : {"dp=1", "dp=2,tp=2", "tp=3"}) {
    Step none = step(mesh, GetParam(), Recompute::kNone);
    EXPECT_EQ(none.calls.count("recompute"), 0u);
    EXPECT_EQ(none.sent["recompute"], 0);
    for (Recompute what : {Recompute::kBlock, Recompute::kAttention}) {
      const std::string where = fmt::format("{} {}", mesh, name(what));
      Step s = step(mesh, GetParam(), what);
      EXPECT_EQ(s.loss, none.loss) << where;
      EXPECT_EQ(s.grads, none.grads) << where;
      EXPECT_EQ(s.calls["forward"], none.calls["forward"]) << where;
      EXPECT_EQ(s.calls["backward"], none.calls["backward"]) << where;
      EXPECT_EQ(s.calls["recompute"]["attention"], 3) << where;
      const int products = GetParam() == std::string("gpt") ? 6 : 7;
      EXPECT_EQ(s.calls["recompute"]["linear"] +
                    s.calls["recompute"]["linear_gelu_tanh"],
                what == Recompute::kBlock ? 3 * products : 0)
          << where;
      EXPECT_EQ(s.sent["forward"], none.sent["forward"]) << where;
      EXPECT_EQ(s.sent["backward"], none.sent["backward"]) << where;
      EXPECT_LT(s.peak, none.peak) << where;
      // The all-reduces after o_proj and after the MLP, in three blocks.
      if (mesh == std::string("dp=2,tp=2")) {
        EXPECT_EQ(s.sent["recompute"], 2 * 3) << where;
      }
    }
  }
}

TEST_P(Recomputing, HoldsWhatItSays) {
  const ModelConfig c = tiny(GetParam());
  const int64_t rows = 4 * c.seq * 8, hidden = rows * c.hidden,
                kv = rows * c.head_dim() * c.kv(), ffn = rows * c.ffn_size();
  const Step none = step("dp=1", GetParam(), Recompute::kNone);
  const Step block = step("dp=1", GetParam(), Recompute::kBlock);
  const Step attention = step("dp=1", GetParam(), Recompute::kAttention);
  // Held: the inputs of the blocks, of the last norm and of the head, and the
  // logits, besides statistics of a few numbers for each row.
  const int64_t inputs = (c.layers + 2) * hidden + rows * c.vocab;
  EXPECT_GE(block.held, inputs);
  EXPECT_LE(block.held, inputs + 8 * rows);
  // In addition: q, k, v, the output of o_proj, and the inputs and products of
  // the MLP.
  const int64_t products = 2 * hidden + 2 * kv + hidden +
                           (GetParam() == std::string("gpt") ? 1 : 2) * ffn;
  EXPECT_EQ(attention.held - block.held, c.layers * products);
  EXPECT_LT(attention.held, none.held * 7 / 10);
  // One block at a time holds its activations, with its result and its
  // cotangent. GPT's gelu is one operator with the linear layer before
  // it; its gradient is made while the incoming one is still there.
  const int64_t one = (none.held - block.held) / c.layers,
                cotangents = GetParam() == std::string("gpt") ? 3 : 2;
  EXPECT_GE(block.peak, block.held + one);
  EXPECT_LE(block.peak, block.held + one + (none.peak - none.held) +
                            cotangents * hidden + rows);
}

// Parameters in parts are gathered, freed, and gathered again when the block is
// computed again. If products are kept, only the gradient gathers them again.
TEST_P(Recomputing, WithParametersInParts) {
  // The weights, and GPT's biases, which the products' kernels add.
  const int parameters = GetParam() == std::string("gpt") ? 2 * 6 : 7;
  for (const char* mesh : {"dp=2", "dp=2,tp=2"}) {
    Step none = step(mesh, GetParam(), Recompute::kNone, 3);
    std::map<Recompute, int> again;
    for (Recompute what : {Recompute::kBlock, Recompute::kAttention}) {
      const std::string where = fmt::format("{} {}", mesh, name(what));
      Step s = step(mesh, GetParam(), what, 3);
      EXPECT_EQ(s.loss, none.loss) << where;
      EXPECT_EQ(s.grads, none.grads) << where;
      EXPECT_EQ(s.sent["forward"], none.sent["forward"]) << where;
      EXPECT_LT(s.peak, none.peak) << where;
      again[what] = s.sent["recompute"];
    }
    EXPECT_EQ(again[Recompute::kBlock] - again[Recompute::kAttention],
              3 * parameters);
  }
}

TEST_P(Recomputing, NothingWithoutGradients) {
  on_mesh<int>("tp=2", [&](const Mesh& m) {
    const ModelConfig config = tiny(GetParam());
    const auto model = make_model(config, m, 1);
    model->set_recompute(Recompute::kBlock);
    const DistTensor tokens =
        randint(0, 17, {2, config.seq}, m, {}, DType::kI64, {5, 0});
    const DistTensor with = model->logits(tokens);
    const NoGrad no_grad;
    const DistTensor without = model->logits(tokens);
    EXPECT_TRUE(with.requires_grad());
    EXPECT_FALSE(without.requires_grad());
    EXPECT_EQ(values(with), values(without));
    return 0;
  });
}

TEST(LanguageModel, TokensThatDoNotFit) {
  on_mesh<int>("tp=2", [](const Mesh& m) {
    const auto model = make_model(tiny("gpt"), m, 1);
    const auto zeros_of = [&](const Shape& s) {
      return zeros(s, m, {}, DType::kI64);
    };
    const std::string longer =
        "[model] tokens [2, 17] are longer than the model's sequence of 16; "
        "shorten them, or make the model with seq 17";
    const DistTensor tokens = zeros_of({2, 17});
    EXPECT_EQ(error_of([&] { model->loss(tokens, tokens); }), longer);
    EXPECT_EQ(error_of([&] { model->logits(tokens); }), longer);
    EXPECT_EQ(error_of([&] { model->loss(zeros_of({17}), tokens); }),
              "[model] tokens have the shape [17]; pass [batch, sequence]");
    return 0;
  });
}

TEST(Recompute, HasNames) {
  for (const char* text : {"none", "block", "attention", "offload"})
    EXPECT_EQ(name(parse_recompute(text)), text);
  EXPECT_EQ(parse_recompute("block"), Recompute::kBlock);
  EXPECT_EQ(error_of([] { parse_recompute("all"); }),
            "[recompute] there is no recomputation \"all\"; write none, block, "
            "attention or offload");
}

// Finds the choices that fit and need the least time, for 3 blocks with these
// bytes each.
TEST(Recompute, WithinABudget) {
  const auto peak = [](const std::vector<Recompute>& blocks) {
    int64_t bytes = 100;
    for (Recompute r : blocks)
      bytes += r == Recompute::kNone ? 50 : r == Recompute::kAttention ? 20 : 5;
    return bytes;
  };
  const auto text = [&](int64_t bytes) {
    std::string all;
    for (Recompute r : recompute_within(bytes, 3, peak))
      all += std::string(name(r)) + " ";
    return all;
  };
  EXPECT_EQ(text(250), "none none none ");
  EXPECT_EQ(text(249), "attention none none ");
  EXPECT_EQ(text(219), "attention attention none ");
  EXPECT_EQ(text(160), "attention attention attention ");
  EXPECT_EQ(text(159), "block attention attention ");
  EXPECT_EQ(text(115), "block block block ");
  // Recomputing whole blocks may need more than recomputing attention.
  const auto more = [&](const std::vector<Recompute>& blocks) {
    return peak(blocks) + (blocks[0] == Recompute::kBlock ? 1000 : 0);
  };
  EXPECT_EQ(recompute_within(160, 3, more),
            std::vector(3, Recompute::kAttention));
  EXPECT_NE(error_of([&] {
              recompute_within(159, 3, more);
            }).find("needs 160 bytes even if"),
            std::string::npos);
  // Offloading holds what recomputing attention does in this prediction.
  const auto offloaded = [&](const std::vector<Recompute>& blocks) {
    std::vector<Recompute> as = blocks;
    std::replace(as.begin(), as.end(), Recompute::kOffload,
                 Recompute::kAttention);
    return peak(as);
  };
  EXPECT_EQ(recompute_within(250, 3, offloaded, true),
            std::vector(3, Recompute::kNone));
  EXPECT_EQ(recompute_within(219, 3, offloaded, true),
            (std::vector{Recompute::kOffload, Recompute::kOffload,
                         Recompute::kNone}));
  EXPECT_EQ(error_of([&] { recompute_within(159, 3, offloaded, true); }),
            "[recompute] a step needs 160 bytes even if every block's "
            "activations are offloaded, but at most 159 are allowed; allow "
            "more, make the batch smaller, or offload the optimizer's state, "
            "too");
  EXPECT_EQ(error_of([&] { text(114); }),
            "[recompute] a step needs 115 bytes even if every block is "
            "recomputed, but at most 114 are allowed; allow more, or make the "
            "batch smaller");
}

// Each block does what was chosen for it, and a step holds what it did.
TEST(Recompute, BlockByBlock) {
  const std::vector<Recompute> choices = {
      Recompute::kBlock, Recompute::kAttention, Recompute::kNone};
  on_mesh<int>("tp=2", [&](const Mesh& m) {
    const ModelConfig config = tiny("llama");
    const auto model = make_model(config, m, 1);
    const DistTensor tokens =
        randint(0, 17, {4, config.seq}, m, {}, DType::kI64, {5, 0});
    const auto gradients = [&] {
      std::vector<std::vector<double>> all;
      for (const DistTensor& g :
           grad(model->loss(tokens, tokens), model->parameters()))
        all.push_back(g.full().to_doubles());
      return all;
    };
    const auto want = gradients();
    model->set_recompute(choices);
    std::vector<int> again(3);
    const OnOp observe(RankContext::current(), [&](const OpRan&) {
      const std::string path(RankContext::current().path);
      for (size_t i = 0; i < 3; ++i)
        again[i] += RankContext::current().phase == "recompute" &&
                    path.find(fmt::format(".{}.", i)) != path.npos;
    });
    EXPECT_EQ(gradients(), want);
    EXPECT_GT(again[0], again[1]);
    EXPECT_GT(again[1], 0);
    EXPECT_EQ(again[2], 0);
    return 0;
  });
  EXPECT_EQ(error_of([&] {
              on_mesh<int>("tp=1", [&](const Mesh& m) {
                make_model(tiny("llama"), m)
                    ->set_recompute(std::vector{Recompute::kNone});
                return 0;
              });
            }),
            "[recompute] 1 choices are given for 3 blocks; give one for each");
}

}  // namespace
}  // namespace dtensor::nn
