// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "dtensor/comm_event.h"
#include "dtensor/nn/optimizer.h"
#include "dtensor/ops/create.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "tests/nn/on_mesh.h"

namespace dtensor::nn {
namespace {

// Gradients in all the layouts that a mesh of up to two axes has.
std::vector<DistTensor> gradients(const Mesh& m, DType dtype) {
  std::vector<DistTensor> out;
  uint64_t stream = 0;
  const auto add = [&](const Placements& p) {
    out.push_back(randn({7, 5}, m, p, dtype, {1, stream++}));
  };
  const bool dp = m.has_axis("dp"), tp = m.has_axis("tp");
  add({});
  add(tp ? Placements{{"tp", Shard(0)}} : Placements{});
  add(tp ? Placements{{"tp", Shard(1)}} : Placements{});
  add(dp ? Placements{{"dp", Shard(1)}} : Placements{});
  add(dp && tp ? Placements{{"dp", Shard(0)}, {"tp", Shard(1)}} : Placements{});
  add(dp && tp ? Placements{{"tp", Shard(0)}, {"dp", Shard(0)}} : Placements{});
  return out;
}

TEST(Clip, EveryElementCountsOnceOnEveryMesh) {
  for (DType t : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
    const auto norm = [&](const std::string& mesh) {
      return on_mesh<double>(
          mesh, [&](const Mesh& m) { return global_norm(gradients(m, t)); });
    };
    const double reference = on_mesh<double>("dp=1", [&](const Mesh& m) {
      double sum = 0;
      for (const DistTensor& g : gradients(m, t))
        for (double x : values(g)) sum += x * x;
      return std::sqrt(sum);
    });
    // Squares of f32 are rounded to f32.
    const double off = (t == DType::kF64 ? 1e-13 : 1e-6) * reference;
    EXPECT_NEAR(norm("dp=1"), reference, off);
    for (const std::string& mesh : test_meshes())
      EXPECT_NEAR(norm(mesh), reference, off) << mesh;
    EXPECT_NEAR(norm("tp=9"), reference, off);
  }
}

// What stays on the device is what the host is told.
TEST(Clip, NumbersOfTheDevice) {
  for (const std::string& mesh : test_meshes())
    on_mesh<int>(mesh, [](const Mesh& m) {
      const auto grads = gradients(m, DType::kF32);
      const double norm = global_norm(grads);
      for (double most : {0.0, 0.5, 1e6}) {
        const GradNorm on_device = grad_norm(grads, most);
        EXPECT_EQ(on_device.norm.item(), norm);
        EXPECT_EQ(on_device.clip.item(), clip_scale(norm, most));
        // The norm of gradients that are divided by 4 later.
        const GradNorm scaled = grad_norm(grads, most, 0.25);
        EXPECT_EQ(scaled.norm.item(), norm / 4);
        EXPECT_EQ(scaled.clip.item(), clip_scale(norm / 4, most));
      }
      return 0;
    });
}

TEST(Clip, OneScalarPerSetOfAxes) {
  on_mesh<int>("dp=2,tp=2", [](const Mesh& m) {
    const auto grads = gradients(m, DType::kF64);
    RankContext& context = RankContext::current();
    context.record = true;
    global_norm(grads);
    context.record = false;
    // tp, dp, and both; nothing for the replicated one.
    EXPECT_EQ(context.events.size(), 3u);
    for (const CommEvent& e : context.events) {
      EXPECT_EQ(e.kind, StepKind::kAllReduce);
      EXPECT_EQ(e.op, "grad_norm");
      EXPECT_EQ(e.phase, "clip");
      EXPECT_GT(e.predicted, 0);
    }
    return 0;
  });
}

// If all ranks are in all meshes, each rank has the totals of all gradients and
// adds them up by itself.
TEST(Clip, NothingMoreWhereNoRankLacksAMesh) {
  on_mesh<int>("dp=2,tp=2", [](const Mesh& m) {
    std::vector<DistTensor> grads = gradients(m, DType::kF64);
    const Mesh other = Mesh::parse("x=4");
    grads.push_back(randn({8, 5}, other, "S0", DType::kF64, {1, 99}));
    RankContext& context = RankContext::current();
    const int64_t before = context.collectives,
                  plans = context.planner.plan_use().misses;
    const double norm = global_norm(grads);
    // Three of the first mesh (see above), one of the other.
    EXPECT_EQ(context.collectives - before, 4);
    EXPECT_EQ(context.planner.plan_use().misses - plans, 4);
    double sum = 0;
    for (const DistTensor& g : grads)
      for (double x : values(g)) sum += x * x;
    EXPECT_NEAR(norm, std::sqrt(sum), 1e-13 * norm);
    return 0;
  });
}

TEST(Clip, PartialGradientsAreRefused) {
  on_mesh<int>("tp=2", [](const Mesh& m) {
    const DistTensor p = ones({4}, m, {{"tp", PartialOf()}});
    EXPECT_THROW(global_norm({p}), Error);
    return 0;
  });
}

TEST(Clip, Scale) {
  EXPECT_DOUBLE_EQ(clip_scale(0.5, 1), 1);
  EXPECT_DOUBLE_EQ(clip_scale(0, 1), 1);
  EXPECT_DOUBLE_EQ(clip_scale(4, 1), 1 / (4 + 1e-6));
  EXPECT_DOUBLE_EQ(clip_scale(4, 0), 1);
}

}  // namespace
}  // namespace dtensor::nn
