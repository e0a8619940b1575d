// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "dtensor/comm_event.h"
#include "dtensor/nn/optimizers.h"
#include "dtensor/ops/create.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/nn/on_mesh.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

// Gradients in all layouts that a mesh of axes dp and tp has.
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

// torch 2.15's clip_grad_norm_([a, b], 1.5).
TEST(Clip, ClipGradNormIsTorchs) {
  for (const std::string& mesh : test_meshes())
    on_mesh<int>(mesh, [](const Mesh& m) {
      const auto of = [&](const Shape& shape, double factor, double shift,
                          const char* layout) {
        std::vector<double> v(static_cast<size_t>(numel(shape)));
        for (size_t i = 0; i < v.size(); ++i)
          v[i] = factor * std::sin(0.7 * static_cast<double>(i) + shift);
        return DistTensor::from_global(
            Tensor::from(shape, v.data()), m,
            Placements{{m.has_axis("tp") ? "tp" : "dp",
                        layout[0] == 'S' ? Placement(Shard(0))
                                         : Placement(Replicate())}});
      };
      const std::vector<DistTensor> grads = {of({2, 2}, 3, 0, "S"),
                                             of({3}, 1, 1, "R")};
      const auto near = [&](const DistTensor& x,
                            const std::vector<double>& want) {
        const std::vector<double> found = values(x);
        ASSERT_EQ(found.size(), want.size());
        for (size_t i = 0; i < want.size(); ++i)
          EXPECT_NEAR(found[i], want[i], 1e-14);
      };
      const std::vector<DistTensor> clipped = clip_grad_norm(grads, 1.5);
      near(clipped[0],
           {0, 0.627710448524748, 0.9601988648619911, 0.8410907515335085});
      near(clipped[1],
           {0.2733031291328294, 0.3220848973294634, 0.219385105596704});
      EXPECT_EQ(clipped[0].spec(), grads[0].spec());
      EXPECT_EQ(values(clip_grad_norm(grads, 5)[0]), values(grads[0]));
      EXPECT_EQ(testing::error_of(
                    [&] { clip_grad_norm({ones({2}, m).as_parameter()}, 1); }),
                "[clip] tensor 0 requires a gradient, as parameters do; pass "
                "what grad() returns, with detach() if it has a graph");
      return 0;
    });
}

// The numbers that stay on the device are those that the host gets.
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
    // One for tp, one for dp and one for both; replicated gradients need none.
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
    // Three over axes of the first mesh (see above), and one over the other
    // mesh.
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

// Guards a fix: the norm of tensors whose meshes differ by rank (rows and
// columns of a square of ranks) ended in an error, since every rank waited for
// another one.

double squares(const DistTensor& x) {
  double sum = 0;
  for (double v : x.full().to_doubles()) sum += v * v;
  return sum;
}

TEST(GlobalNorm, OfTheRankSOwnRowAndColumn) {
  const Mesh rows[] = {Mesh::parse("r=2 of ranks 0,1"),
                       Mesh::parse("r=2 of ranks 2,3")};
  const Mesh columns[] = {Mesh::parse("c=2 of ranks 0,2"),
                          Mesh::parse("c=2 of ranks 1,3")};
  run(4, [&](Runtime& rt) {
    const auto r = static_cast<uint64_t>(rt.rank());
    const DistTensor a =
        randn({5, 3}, rows[r / 2], "S0", DType::kF64, {1, r / 2});
    const DistTensor b =
        randn({4}, columns[r % 2], "S0", DType::kF64, {2, r % 2});
    const DistTensor w = randn({3}, rows[r / 2], "R", DType::kF64, {3, r / 2});
    const double want = std::sqrt(squares(a) + squares(b) + squares(w));
    EXPECT_NEAR(global_norm({a, b, w}), want, 1e-13);
    EXPECT_NEAR(global_norm({a, b, w}), want, 1e-13);
  });
}

// If all ranks list the same tensors, each rank has the norm of all of them:
// also of those that it has no part of, and of tensors on one of several meshes
// that share a rank.
TEST(GlobalNorm, OfMeshesThatShareARank) {
  const Mesh first = Mesh::parse("a=2 of ranks 0,1"),
             second = Mesh::parse("b=3 of ranks 3,0,2"),
             apart = Mesh::parse("c=1 of ranks 1");
  for (const bool three : {false, true})
    run(4, [&](Runtime& rt) {
      std::vector<DistTensor> all{
          randn({5, 3}, first, "S0", DType::kF64, {1, 0}),
          randn({7}, second, "S0", DType::kF64, {2, 0})};
      if (three) all.push_back(randn({2}, apart, "R", DType::kF64, {3, 0}));
      double want = 0;
      for (const DistTensor& x : all) {
        const Mesh world = Mesh::parse("w=4");
        want += squares(x.redistribute(world, "R"));
      }
      EXPECT_NEAR(global_norm(all), std::sqrt(want), 1e-13) << rt.rank();
    });
}

// A dry run runs the last rank. It also counts what is sent to ranks that lack
// a part, though the last rank lacks none.
TEST(GlobalNorm, OfADryRunIsThatOfAllRanks) {
  RunOptions dry;
  dry.world = 4;
  dry.dry_run = true;
  run(dry, [&](Runtime& rt) {
    RankContext& context = rt.context();
    const DistTensor a = zeros({5}, Mesh::parse("a=2 of ranks 1,3")),
                     b = zeros({7}, Mesh::parse("b=3 of ranks 0,2,3"));
    context.record = true;
    grad_norm({a, b});
    int to_all = 0;
    for (const CommEvent& e : context.events) to_all += e.mesh.num_ranks() > 3;
    EXPECT_EQ(to_all, 2);
  });
}

}  // namespace
}  // namespace dtensor::nn
