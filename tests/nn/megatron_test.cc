// SPDX-License-Identifier: Apache-2.0
// A tensor-parallel block moves what Megatron-LM moves (Shoeybi et al., arXiv
// 1909.08053, figure 4): two all-reduces of the activations forward and two
// backward. The chooser finds that; it is not programmed. No rank holds a
// gathered weight or the whole logits.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "dtensor/allocator.h"
#include "dtensor/comm_event.h"
#include "dtensor/nn/models.h"
#include "dtensor/ops/attention.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"

namespace dtensor {
namespace {

constexpr int64_t kBatch = 4;

struct Traffic {
  std::vector<CommEvent> events;
  Allocator::Stats memory;

  // The number of collectives over `axis` in `phase`, and their bytes.
  std::pair<int64_t, int64_t> over(const std::string& axis,
                                   const std::string& phase) const {
    int64_t count = 0, bytes = 0;
    for (const CommEvent& e : events) {
      if (e.mesh.axes_to_string(e.axes) != axis || e.phase != phase) continue;
      ++count;
      bytes += e.predicted;
    }
    return {count, bytes};
  }
};

// Makes one forward and backward pass. Returns what the last rank sees.
Traffic train_once(const nn::ModelConfig& config, const Mesh& mesh,
                   const nn::ParallelPlan& plan, bool dry_run) {
  Traffic result;
  RunOptions options;
  options.world = mesh.num_ranks();
  options.dry_run = dry_run;
  run(options, [&](Runtime& rt) {
    auto model = nn::make_model(config, mesh, plan, 1);
    RankContext& ctx = rt.context();
    ctx.record = true;
    DistTensor tokens =
        randint(0, config.vocab, {kBatch, config.seq}, mesh,
                nn::batch_placements(mesh), DType::kI64, {2, 0});
    DistTensor loss = model->loss(tokens, tokens);
    grad(loss, model->parameters());
    if (rt.rank() + 1 != rt.world_size()) return;
    result.events = ctx.events;
    result.memory = ctx.allocator->stats();
  });
  return result;
}

nn::ModelConfig tiny(const std::string& name, int64_t layers) {
  nn::ModelConfig c;
  c.name = name;
  c.layers = layers;
  c.hidden = 24;
  c.heads = 4;
  c.seq = 6;
  c.vocab = 32;
  return c;
}

// The collectives over tp, and their bytes, of one more block.
std::pair<int64_t, int64_t> per_block(const std::string& name,
                                      const std::string& phase,
                                      const Mesh& mesh) {
  auto of = [&](int64_t layers) {
    nn::ModelConfig c = tiny(name, layers);
    return train_once(c, mesh, nn::default_plan(c, mesh), false)
        .over("tp", phase);
  };
  auto [more, more_bytes] = of(3);
  auto [less, less_bytes] = of(2);
  return {more - less, more_bytes - less_bytes};
}

TEST(MegatronTest, ABlockHasTwoAllReducesForwardAndTwoBackward) {
  for (const char* name : {"gpt", "llama"})
    for (const char* text : {"tp=2", "tp=4", "dp=2,tp=2"})
      for (const char* phase : {"forward", "backward"}) {
        Mesh mesh = Mesh::parse(text);
        SCOPED_TRACE(std::string(name) + " on " + text + ", " + phase);
        int64_t tp = mesh.axis_size(mesh.axis("tp"));
        int64_t dp = mesh.has_axis("dp") ? mesh.axis_size(0) : 1;
        nn::ModelConfig c = tiny(name, 1);
        int64_t elements = kBatch / dp * c.seq * c.hidden;
        // A ring all-reduce brings each rank 2 (p-1)/p of the vector.
        int64_t bytes = 2 * (2 * (tp - 1) * elements / tp) * 4;
        EXPECT_EQ(per_block(name, phase, mesh), std::pair(int64_t{2}, bytes));
      }
}

// At this size local work is dear, but the chooser must not split it.
TEST(MegatronTest, SoItIsAtTheDefaultSize) {
  Mesh mesh = Mesh::parse("dp=2,tp=2");
  for (const char* name : {"gpt", "llama"})
    for (const char* phase : {"forward", "backward"}) {
      auto of = [&](int64_t layers) {
        nn::ModelConfig c;  // hidden 256, 8 heads, sequence 128
        c.name = name;
        c.layers = layers;
        return train_once(c, mesh, nn::default_plan(c, mesh), true)
            .over("tp", phase);
      };
      auto [more, more_bytes] = of(4);
      auto [less, less_bytes] = of(3);
      EXPECT_EQ(more - less, 2) << name << " " << phase;
      EXPECT_EQ(more_bytes - less_bytes, 2 * (kBatch / 2 * 128 * 256 * 4))
          << name << " " << phase;
    }
}

TEST(MegatronTest, RowThenColumnCostsMore) {
  Mesh mesh = Mesh::parse("tp=4");
  nn::ModelConfig c = tiny("gpt", 2);
  nn::ParallelPlan swapped = {
      {"*.mlp.c_fc.weight", {{"tp", Shard(1)}}},
      {"*.mlp.c_fc.bias", {}},
      {"*.mlp.c_proj.weight", {{"tp", Shard(0)}}},
      {"*.mlp.c_proj.bias", {{"tp", Shard(0)}}},
  };
  nn::ParallelPlan usual = nn::default_plan(c, mesh);
  swapped.insert(swapped.end(), usual.begin(), usual.end());
  int64_t bytes[2] = {};
  for (const CommEvent& e : train_once(c, mesh, usual, true).events)
    bytes[0] += e.predicted;
  for (const CommEvent& e : train_once(c, mesh, swapped, true).events)
    bytes[1] += e.predicted;
  EXPECT_GT(bytes[1], bytes[0]);
}

// The largest single request so far, and its tag.
int64_t largest(const Allocator::Stats& stats, std::string* tag) {
  int64_t most = 0;
  for (const auto& [name, bytes] : stats.largest_by_tag)
    if (bytes > most) most = bytes, *tag = name;
  return most;
}

// A vocabulary so large that the table and the logits dominate everything.
nn::ModelConfig wide(const std::string& name) {
  nn::ModelConfig c = tiny(name, 1);
  c.vocab = 8192;
  c.seq = 8;
  return c;
}

TEST(MegatronTest, NoRankHoldsAGatheredWeightOrTheLogits) {
  Mesh mesh = Mesh::parse("tp=4");
  for (const char* name : {"gpt", "llama"})
    for (bool dry : {false, true}) {
      nn::ModelConfig c = wide(name);
      Traffic t = train_once(c, mesh, nn::default_plan(c, mesh), dry);
      std::string tag;
      int64_t local_logits = kBatch * c.seq * c.vocab / 4 * 4;
      int64_t local_table = c.vocab * c.hidden / 4 * 4;
      EXPECT_LE(largest(t.memory, &tag), std::max(local_logits, local_table))
          << name << ", dry " << dry << ": " << tag;
    }
}

TEST(MegatronTest, AForcedGatherIsSeen) {
  Mesh mesh = Mesh::parse("tp=4");
  run(4, [&](Runtime& rt) {
    nn::ModelConfig c = wide("gpt");
    auto model = nn::make_model(c, mesh, nn::default_plan(c, mesh), 1);
    std::string tag;
    int64_t table = c.vocab * c.hidden * 4;
    EXPECT_LT(largest(rt.context().allocator->stats(), &tag), table);
    model->parameter("transformer.wte.weight").redistribute("R");
    EXPECT_GE(largest(rt.context().allocator->stats(), &tag), table);
  });
}

// The sequence is so long that keys and values dominate. 8 query heads share 2
// of them.
TEST(MegatronTest, ARankHoldsOnlyTheHeadsThatItsQueriesName) {
  Mesh mesh = Mesh::parse("tp=4");
  run(4, [&](Runtime& rt) {
    constexpr int64_t kSeq = 512, kDim = 8;
    DistTensor q =
        randn({1, kSeq, 8, kDim}, mesh, {{"tp", Shard(2)}}, DType::kF32, {1, 1})
            .set_requires_grad();
    DistTensor k =
        randn({1, kSeq, 2, kDim}, mesh, {{"tp", Shard(2)}}, DType::kF32, {1, 2})
            .set_requires_grad();
    DistTensor v =
        randn({1, kSeq, 2, kDim}, mesh, {{"tp", Shard(2)}}, DType::kF32, {1, 3})
            .set_requires_grad();
    grad(sum(attention(q, k, v, {.causal = true})), {q, k, v});
    // A rank has two of eight query heads. They share one head of k and of v,
    // which is half as large.
    std::string tag;
    EXPECT_LE(largest(rt.context().allocator->stats(), &tag),
              kSeq * 2 * kDim * 4)
        << tag;
  });
}

TEST(MegatronTest, TheDryRunPredictsThePeak) {
  for (const char* text : {"dp=1", "tp=2", "dp=2,tp=2"}) {
    Mesh mesh = Mesh::parse(text);
    nn::ModelConfig c = wide("gpt");
    auto plan = nn::default_plan(c, mesh);
    Traffic real = train_once(c, mesh, plan, false);
    Traffic dry = train_once(c, mesh, plan, true);
    EXPECT_EQ(real.memory.peak_bytes, dry.memory.peak_bytes) << text;
    ASSERT_EQ(real.events.size(), dry.events.size()) << text;
    for (size_t i = 0; i < real.events.size(); ++i)
      EXPECT_EQ(real.events[i].predicted, dry.events[i].predicted) << text;
  }
}

}  // namespace
}  // namespace dtensor
