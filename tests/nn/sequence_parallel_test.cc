// SPDX-License-Identifier: Apache-2.0
// Sequences split over ranks: between blocks (sequence parallelism) and
// throughout (context parallelism). The loss and the gradients do not change,
// and what is sent and held is what the theory says.
#include <gtest/gtest.h>

#include <cmath>

#include "dtensor/comm_table.h"
#include "dtensor/nn/models.h"
#include "dtensor/nn/optimizer.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/owned.h"
#include "dtensor/rank_context.h"
#include "tests/nn/on_mesh.h"

namespace dtensor::nn {
namespace {

using Values = std::vector<double>;

struct Strategy {
  const char* mesh;
  bool sequence = false;
  ContextParallel context = ContextParallel::kAuto;
};

std::string label(const Strategy& s) {
  return std::string(s.mesh) + (s.sequence ? ", sequence parallel, " : ", ") +
         std::string(name(s.context));
}

ParallelPlan plan_of(const ModelConfig& config, const Mesh& mesh,
                     const Strategy& s) {
  ParallelPlan plan = default_plan(config, mesh);
  plan.context = s.context;
  return s.sequence ? sequence_parallel(std::move(plan)) : plan;
}

ModelConfig tiny(const std::string& name, int64_t seq = 7) {
  ModelConfig c{.name = name,
                .layers = 2,
                .hidden = 24,
                .heads = 6,
                .seq = seq,
                .vocab = 17,
                .dtype = DType::kF64};
  if (name == "llama") c.kv_heads = 2;
  return c;
}

DistTensor draw(const Mesh& m, int64_t rows, int64_t seq, const ModelConfig& c,
                uint64_t stream) {
  const Shape shape{rows, seq};
  return randint(0, c.vocab, shape, m, batch_layout(m, shape), DType::kI64,
                 {5, stream});
}

struct Gradients {
  double loss = 0, norm = 0;
  std::vector<Values> values;
};

// The sequences are shorter than the model's longest by one.
Gradients gradients(const Strategy& s, const ModelConfig& config) {
  return on_mesh<Gradients>(s.mesh, [&](const Mesh& m) {
    const auto model = make_model(config, m, plan_of(config, m, s), 1);
    const DistTensor loss = model->loss(draw(m, 3, config.seq - 1, config, 0),
                                        draw(m, 3, config.seq - 1, config, 1));
    const auto grads = grad(loss, model->parameters());
    Gradients out{loss.item(), global_norm(grads), {}};
    for (const DistTensor& g : grads) out.values.push_back(values(g));
    return out;
  });
}

void expect_equal(const Gradients& got, const Gradients& want) {
  EXPECT_NEAR(got.loss, want.loss, 1e-11 * want.loss);
  EXPECT_NEAR(got.norm, want.norm, 1e-11 * want.norm);
  for (size_t i = 0; i < want.values.size(); ++i) {
    double largest = 0, off = 0;
    for (size_t j = 0; j < want.values[i].size(); ++j) {
      largest = std::max(largest, std::abs(want.values[i][j]));
      off = std::max(off, std::abs(got.values[i][j] - want.values[i][j]));
    }
    EXPECT_LE(off, 1e-11 * std::max(largest, 1e-3)) << i;
  }
}

class Sequences : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, Sequences, ::testing::Values("gpt", "llama"));

TEST_P(Sequences, LossAndGradientsAreThoseOfOneRank) {
  constexpr auto kRing = ContextParallel::kRing;
  constexpr auto kHeads = ContextParallel::kAllToAll;
  const Strategy strategies[] = {
      {"tp=2", true},
      {"tp=3", true},
      {"dp=2,tp=2", true},
      {"cp=2", false, kRing},
      {"cp=3", false, kRing},
      {"cp=4", false, kRing},
      {"cp=2", false, kHeads},
      {"cp=3", false, kHeads},
      {"cp=4", false, kHeads},
      {"cp=3"},
      {"dp=2,cp=2"},
      {"cp=2,tp=2", false, kRing},
      {"cp=2,tp=2", true, kRing},
      {"cp=2,tp=3", true, kHeads},
      {"tp=2,cp=3", true},
  };
  for (int64_t seq : {7, 2}) {
    const ModelConfig config = tiny(GetParam(), seq + 1);
    const Gradients one = gradients({"dp=1"}, config);
    for (const Strategy& s : strategies) {
      SCOPED_TRACE(label(s) + " of " + std::to_string(seq));
      expect_equal(gradients(s, config), one);
    }
  }
}

struct Pass {
  int64_t forward = 0, backward = 0;  // bytes sent
  int64_t kept = 0;                   // activations that the gradient needs
  int64_t peak = 0;
};

// Sizes that divide, so that all ranks send and hold the same.
ModelConfig even(const std::string& name, int64_t seq) {
  ModelConfig c = tiny(name, seq);
  c.hidden = 32;
  c.heads = 8;
  c.kv_heads = 0;
  c.vocab = 32;
  c.dtype = DType::kF32;
  return c;
}

constexpr int64_t kRows = 4;

// Makes one forward and backward pass. Returns what rank 0 sees.
Pass pass(ModelConfig c, int64_t layers, const Strategy& s, bool dry) {
  Pass p;
  c.layers = layers;
  const Mesh mesh = Mesh::parse(s.mesh);
  RunOptions options;
  options.world = mesh.num_ranks();
  options.dry_run = dry;
  run(options, [&](Runtime& rt) {
    const auto model = make_model(c, mesh, plan_of(c, mesh, s), 1);
    RankContext& ctx = rt.context();
    const DistTensor tokens = draw(mesh, kRows, c.seq, c, 0);
    ctx.record = true;
    const auto held = [&] {
      return ctx.allocator->stats().of(MemoryKind::kActivations).current_bytes;
    };
    const int64_t before = held();
    ctx.allocator->reset_peak();
    const DistTensor loss = model->loss(tokens, tokens);
    const int64_t kept = held() - before;
    grad(loss, model->parameters());
    const std::vector<CommEvent> events = merge_events(ctx.events);
    if (!dry && rt.rank() != 0) return;
    p.kept = kept;
    p.peak = ctx.allocator->stats().of(MemoryKind::kActivations).peak_bytes;
    for (const CommEvent& e : events)
      (e.phase == "forward" ? p.forward : p.backward) += e.predicted;
    if (dry) return;
    int64_t counted = 0;
    for (const CommEvent& e : events) counted += e.counted;
    EXPECT_EQ(counted, p.forward + p.backward);
  });
  return p;
}

// The bytes and the memory that one more block adds.
Pass per_block(const ModelConfig& c, const Strategy& s, bool dry) {
  const Pass two = pass(c, 2, s, dry), three = pass(c, 3, s, dry);
  return {three.forward - two.forward, three.backward - two.backward,
          three.kept - two.kept, three.peak - two.peak};
}

// An all-gather and a reduce-scatter replace each all-reduce. The backward pass
// also reduces the gradients of parameters that are added or multiplied behind
// a reduction: of a block's two norms and, in gpt, of the biases of two
// products.
TEST_P(Sequences, SequenceParallelSendsWhatTensorParallelDoes) {
  for (const char* text : {"tp=2", "tp=4", "dp=2,tp=2"})
    for (bool dry : {false, true}) {
      SCOPED_TRACE(text);
      const Mesh mesh = Mesh::parse(text);
      const ModelConfig c = even(GetParam(), 8);
      const Pass tensor = per_block(c, {text}, dry);
      const Pass sequence = per_block(c, {text, true}, dry);
      // These gradients are summed over all ranks, not over those of dp alone.
      const auto all_reduce = [&](int64_t ranks) {
        return 2 * (ranks - 1) * (c.hidden / ranks) * 4;
      };
      const int64_t dp = mesh.has_axis("dp") ? mesh.axis_size(0) : 1;
      const int64_t vectors = GetParam() == std::string("gpt") ? 6 : 2;
      EXPECT_GT(tensor.forward, 0);
      EXPECT_EQ(sequence.forward, tensor.forward);
      EXPECT_EQ(sequence.backward - tensor.backward,
                vectors * (all_reduce(mesh.num_ranks()) - all_reduce(dp)));
    }
}

// For the gradient, a rank keeps parts of the stream before and after
// attention, and of the norms' statistics. The inputs of a block's matrices are
// kept whole, or split as the matrices are; and the norms keep their part of
// these inputs.
TEST_P(Sequences, SequenceParallelKeepsParts) {
  for (int64_t p : {2, 4})
    for (bool dry : {false, true}) {
      const std::string mesh = "tp=" + std::to_string(p);
      const ModelConfig c = even(GetParam(), 64);
      const Pass tensor = per_block(c, {mesh.c_str()}, dry);
      const Pass sequence = per_block(c, {mesh.c_str(), true}, dry);
      const int64_t rows = kRows * c.seq * 4, stream = rows * c.hidden;
      const int64_t statistics =
          (GetParam() == std::string("gpt") ? 4 : 2) * rows;
      EXPECT_EQ(tensor.kept - sequence.kept,
                (2 * stream + statistics) * (p - 1) / p - 2 * stream / p);
    }
}

// A rank keeps 1/p of all of a block's activations. (With all-to-all, it keeps
// attention's result in both of its layouts.)
TEST_P(Sequences, ContextParallelKeepsAPart) {
  for (ContextParallel how :
       {ContextParallel::kRing, ContextParallel::kAllToAll})
    for (bool dry : {false, true}) {
      SCOPED_TRACE(name(how));
      const ModelConfig c = even(GetParam(), 256);
      const Pass one = per_block(c, {"dp=1"}, dry);
      const Pass four = per_block(c, {"cp=4", false, how}, dry);
      const int64_t out = kRows * c.seq / 4 * c.hidden * 4;
      EXPECT_EQ(four.kept,
                one.kept / 4 + (how == ContextParallel::kRing ? 0 : out));
      EXPECT_LE(static_cast<double>(pass(c, 4, {"cp=4", false, how}, dry).peak),
                0.3 * static_cast<double>(pass(c, 4, {"dp=1"}, dry).peak));
    }
}

// In the forward pass, only a block's attention sends.
TEST_P(Sequences, ContextParallelSendsKeysAndValues) {
  for (int64_t p : {2, 4})
    for (bool dry : {false, true}) {
      ModelConfig c = even(GetParam(), 32);
      if (GetParam() == std::string("llama")) c.kv_heads = 2;
      const std::string mesh = "cp=" + std::to_string(p);
      const int64_t block = kRows * c.seq / p * c.kv() * c.head_dim() * 4;
      EXPECT_EQ(per_block(c, {mesh.c_str(), false, ContextParallel::kRing}, dry)
                    .forward,
                2 * (p - 1) * block);
    }
}

// dp splits the rows of a batch. A rank of cp has a chunk from either end of a
// row.
TEST(SequenceParallelTest, ABatchInZigzagOrder) {
  const Mesh mesh = Mesh::parse("dp=2,cp=2,tp=3");
  const Layout layout = batch_layout(mesh, {4, 11});
  EXPECT_EQ(layout.dims[0], Dim(4, Split::over({0})));
  EXPECT_EQ(layout.dims[1], zigzag(11, mesh, 1));
  EXPECT_EQ(batch_layout(Mesh::parse("dp=2"), {4, 11}).dims[1], Dim(11));
}

TEST(SequenceParallelTest, AMeshWithoutTheAxis) {
  try {
    on_mesh<int>("dp=2", [](const Mesh& m) {
      const ModelConfig c = tiny("gpt");
      make_model(c, m, sequence_parallel({}, "tp"));
      return 0;
    });
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()),
              "[sequence_parallel] mesh dp=2 has no axis \"tp\" to split "
              "sequences over; name an axis that splits the model, or leave "
              "sequence_parallel() out");
  }
}

}  // namespace
}  // namespace dtensor::nn
