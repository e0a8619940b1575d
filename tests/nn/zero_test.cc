// SPDX-License-Identifier: Apache-2.0
// ZeRO sends and holds, to the byte, what the formulas of Rajbhandari et al.
// (arXiv 1910.02054) say, and its updates are those of one rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "dtensor/allocator.h"
#include "dtensor/comm_event.h"
#include "dtensor/nn/layers.h"
#include "dtensor/nn/optimizers.h"
#include "dtensor/nn/parallel.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/rank_context.h"
#include "tests/nn/on_mesh.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

using dtensor::testing::error_of;

constexpr int64_t kLayers = 5;

// A stack of square matrices.
class Stack : public Module {
 public:
  Stack(const Scope& at, int64_t width) : Module(at) {
    for (int64_t i = 0; i < kLayers; ++i)
      layers_.push_back(
          add<Linear>("layers." + std::to_string(i), width, width, false));
  }
  DistTensor forward(DistTensor x) const {
    for (const Child<Linear>& l : layers_) x = gelu(l(x));
    return x;
  }

 private:
  std::vector<Child<Linear>> layers_;
};

// The events and the memory of a step on rank 0.
struct Seen {
  std::vector<CommEvent> events;
  Allocator::Stats memory;
  std::vector<double> after;  // all parameters
  int64_t bytes(std::string_view phase = "") const {
    int64_t sum = 0;
    for (const CommEvent& e : events)
      if (phase.empty() || e.phase == phase) sum += e.predicted;
    return sum;
  }
};

struct Setting {
  std::string mesh;
  int stage = 0;
  int64_t width = 96;
  DType dtype = DType::kF32;
  int64_t budget = 0, bucket = 1;
  std::string axis = "dp";
  int steps = 2;
};

Seen train(const Setting& s) {
  return on_mesh<Seen>(s.mesh, [&](const Mesh& mesh) {
    RankContext& context = RankContext::current();
    context.gather_budget = s.budget;
    ParallelPlan plan;
    if (mesh.has_axis("tp"))
      plan = {{"layers.0.*", {{"tp", Shard(0)}}},
              {"layers.1.*", {{"tp", Shard(1)}}}};
    const auto plans = std::make_shared<const ParallelPlan>(
        zero(std::move(plan), s.stage, s.axis));
    const Stack model({mesh, plans, s.dtype, 1}, s.width);
    AdamW optimizer(model.named_parameters());
    const std::vector<DistTensor> parameters = model.parameters();
    const DistTensor x =
        randn({8, s.width}, mesh, batch_placements(mesh), s.dtype, {5, 1});
    Seen seen;
    for (int i = 0; i < s.steps; ++i) {
      context.record = true;
      context.events.clear();
      context.allocator->reset_peak();
      const DistTensor loss = mean(square(model.forward(x)));
      const std::vector<DistTensor> grads = grad(
          loss, parameters,
          {.release_graph = true, .bucket_bytes = s.stage >= 2 ? s.bucket : 0});
      optimizer.step(grads, {.lr = 1e-2});
      context.record = false;
    }
    // Leave out the loss, which is an all-reduce of one number.
    std::erase_if(context.events,
                  [](const CommEvent& e) { return e.predicted < 64; });
    for (const CommEvent& e : context.events) seen.events.push_back(e);
    seen.memory = context.allocator->stats();
    for (const DistTensor& p : parameters)
      for (double v : values(p)) seen.after.push_back(v);
    return seen;
  });
}

TEST(Zero, PlansSayWhereParametersLie) {
  const Mesh mesh = Mesh::parse("dp=3,tp=2");
  const ParallelPlan plan = {{"col", {{"tp", Shard(0)}}},
                             {"heads", {{"tp", Shard(0, 8)}}}};
  struct Case {
    const char *name, *rest, *use, *update;
    Shape shape;
    int stage;
  };
  // If two dimensions can be cut equally well, the first one is cut. Heads are
  // few, and stay whole. A vector of 2 leaves one rank without a part.
  const Case cases[] = {
      {"col", "R,S0", "R,S0", "[{tp,dp},{}]", {12, 6}, 1},
      {"col", "R,S0", "R,S0", "[{tp,dp},{}]", {12, 6}, 2},
      {"col", "[{tp,dp},{}]", "R,S0", "[{tp,dp},{}]", {12, 6}, 3},
      {"heads", "S1,S0/8", "R,S0/8", "S1,S0/8", {24, 9}, 3},
      {"other", "S1,R", "R,R", "S1,R", {4, 30}, 3},
      {"other", "S0,R", "R,R", "S0,R", {2}, 3},
      {"other", "R,R", "R,R", "R,R", {}, 3},
      {"col", "R,S0", "R,S0", "R,S0", {12, 6}, 0},
  };
  for (const Case& c : cases) {
    const ParameterLayouts l =
        layouts_of(zero(plan, c.stage), c.name, mesh, c.shape);
    const auto text = [&](const Layout& layout) {
      return layout.to_string(mesh);
    };
    EXPECT_EQ(text(l.rest), c.rest) << c.name << c.stage;
    EXPECT_EQ(text(l.use), c.use) << c.name << c.stage;
    EXPECT_EQ(text(l.update), c.update) << c.name << c.stage;
  }
}

TEST(Zero, WhatCannotBeIsRefused) {
  const Mesh mesh = Mesh::parse("tp=2");
  EXPECT_EQ(error_of([] { zero({}, 4); }),
            "[zero] stage is 4; write 1 (shard the optimizer's state), 2 "
            "(gradients too), 3 (parameters too), or 0 (nothing)");
  EXPECT_EQ(error_of([&] { layouts_of(zero({}, 1), "w", mesh, {4}); }),
            "[zero] mesh tp=2 has no axis \"dp\" to split over; name an axis "
            "that splits the batch, or write stage 0");
}

TEST(Zero, BytesAreTheFormulas) {
  for (const int64_t p : {2, 3, 4}) {
    const std::string mesh = "dp=" + std::to_string(p);
    const int64_t one = 96 * 96 * 4 * (p - 1) / p, psi = kLayers * one;
    const Seen dp = train({mesh, 0});
    EXPECT_EQ(dp.bytes(), 2 * psi);
    for (const int stage : {1, 2}) {
      const Seen z = train({mesh, stage});
      EXPECT_EQ(z.bytes(), 2 * psi) << stage;
      EXPECT_EQ(z.bytes("backward"), psi) << stage;
      EXPECT_EQ(z.bytes("update"), psi) << stage;
    }
    // Each matrix is sent three times. The backward pass gathers neither the
    // first one, since its input wants no gradient, nor the last one, with
    // which it begins.
    const Seen z = train({mesh, 3});
    EXPECT_EQ(z.bytes(), 3 * psi - 2 * one);
    EXPECT_EQ(z.bytes("forward"), psi);
    EXPECT_EQ(z.bytes("backward"), 2 * psi - 2 * one);
    // With a budget that holds all matrices, and one that holds three.
    const int64_t each = 96 * 96 * 4;
    EXPECT_EQ(train({mesh, 3, 96, DType::kF32, 2 * kLayers * each}).bytes(),
              2 * psi);
    EXPECT_EQ(train({mesh, 3, 96, DType::kF32, 2 * 3 * each}).bytes(),
              3 * psi - 4 * one);
    for (const Seen* s : {&dp, &z})
      for (const CommEvent& e : s->events) EXPECT_EQ(e.predicted, e.counted);
  }
}

TEST(Zero, BytesOfPartsThatDiffer) {
  // 50 columns on 4 ranks: 12, 13, 12, 13. A rank receives the rest of the
  // matrix in a gather, and its part from three other ranks in a reduction.
  const int64_t row = 50 * 4;
  const Seen z = train({"dp=4", 3, 50});
  EXPECT_EQ(z.bytes("forward"), kLayers * row * (50 - 12));
  EXPECT_EQ(z.bytes("backward"),
            (kLayers - 2) * row * (50 - 12) + kLayers * row * 3 * 13);
}

// 16 bytes per parameter for the parameter, its gradient and the state: 4 + 4 +
// 8 in f32, and 2 + 2 + 12 in halves. Each stage splits more of them.
TEST(Zero, MemoryIsTheFormulas) {
  const int64_t p = 4, elements = 96 * 96;
  const auto most = [](const Seen& s, MemoryKind k) {
    return s.memory.of(k).peak_bytes;
  };
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    for (const int stage : {0, 1, 2, 3}) {
      const Seen s = train({"dp=4", stage, 96, dtype});
      SCOPED_TRACE(std::string(name(dtype)) + " " + std::to_string(stage));
      const int64_t each = elements * size_of(dtype), psi = kLayers * each;
      EXPECT_EQ(most(s, MemoryKind::kParameters), stage == 3 ? psi / p : psi);
      EXPECT_EQ(most(s, MemoryKind::kState), (dtype == DType::kF32 ? 8 : 12) *
                                                 kLayers * elements /
                                                 (stage ? p : 1));
      const int64_t gradients = most(s, MemoryKind::kGradients);
      if (stage >= 2) {
        // All parts, a bucket (one matrix) that fills, and one that is on its
        // way.
        EXPECT_GE(gradients, psi / p);
        EXPECT_LE(gradients, psi / p + 2 * each);
      } else {
        // Stage 1 also has the parts when they are made.
        EXPECT_GE(gradients, psi);
        EXPECT_LE(gradients, stage ? psi + psi / p : psi);
      }
      const int64_t gathered = most(s, MemoryKind::kGathered);
      if (stage == 3) {
        // The gathered copy in use, and one on its way.
        EXPECT_GE(gathered, each);
        EXPECT_LE(gathered, 2 * each);
      } else {
        EXPECT_EQ(gathered, stage ? psi : 0);
      }
    }
}

double worst(const Seen& a, const Seen& b) {
  if (a.after.size() != b.after.size()) return 1e9;
  double most = 0;
  for (size_t i = 0; i < a.after.size(); ++i)
    most = std::max(most, std::abs(a.after[i] - b.after[i]));
  return most;
}

TEST(Zero, UpdatesAreThoseOfOneRank) {
  const Seen one = train({"dp=1", 0, 7, DType::kF64});
  for (const Setting& s :
       std::vector<Setting>{{"dp=2", 1},
                            {"dp=3", 2},
                            {"dp=2", 3},
                            {"dp=4", 3},
                            {"dp=9", 3},  // more ranks than rows
                            {"dp=3", 3, 7, DType::kF64, 1 << 20},
                            {"dp=2,tp=2", 1},
                            {"dp=2,tp=2", 3},
                            {"dp=2,tp=3", 3, 7, DType::kF64, 200},
                            {"dp=2,fsdp=2", 3, 7, DType::kF64, 0, 1, "fsdp"},
                            {"dp=2,fsdp=3", 1, 7, DType::kF64, 0, 1, "fsdp"}}) {
    Setting now = s;
    now.width = 7;
    now.dtype = DType::kF64;
    EXPECT_LE(worst(train(now), one), 1e-12) << s.mesh << " stage " << s.stage;
  }
}

// The sums have the same order, so the bits are the same, also of f32 masters.
TEST(Zero, EveryStageIsDataParallelBitForBit) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    for (const char* mesh : {"dp=2", "dp=3", "dp=2,tp=2", "dp=9"}) {
      const Seen dp = train({mesh, 0, 7, dtype});
      for (const int stage : {1, 2, 3})
        EXPECT_EQ(worst(train({mesh, stage, 7, dtype}), dp), 0)
            << mesh << " stage " << stage;
    }
}

}  // namespace
}  // namespace dtensor::nn
