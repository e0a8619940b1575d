// SPDX-License-Identifier: Apache-2.0
// Guards a fix: a program with a new factor at every step cached a Decision of
// 2.7 KB for each, although the factor has no influence on it. Other caches are
// bounded.
#include "dtensor/ops/decision.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "dtensor/comm_event.h"
#include "dtensor/execution.h"
#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/norm.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/bounded_cache.h"
#include "dtensor/placement/spec.h"
#include "dtensor/rank_context.h"
#include "dtensor/redistribute.h"
#include "dtensor/runtime.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

TEST(Decisions, DoNotGrowWithNumbers) {
  run(1, [](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"x", 1}});
    const DistTensor x = randn({2, 3}, mesh, {}, DType::kF64, {1, 1});
    const DistTensor g = ones({3}, mesh, {}, DType::kF64);
    auto step = [&](int i) {
      const double v = 1 + 1e-3 * i;
      clamp(pow(dropout(x * v + v, 0.5 / v, {1, 2}), v), -v, v);
      rms_norm(x, g, v);
    };
    step(0);
    const size_t before = decision_use(rt.context()).entries;
    for (int i = 1; i < 50; ++i) step(i);
    EXPECT_EQ(decision_use(rt.context()).entries, before);
    EXPECT_GE(decision_use(rt.context()).hits, 49 * 6);
    // The result depends on the number all the same.
    EXPECT_DOUBLE_EQ((x * 3.0).local().at(0), 3 * x.local().at(0));
  });
}

TEST(Decisions, AreBounded) {
  RunOptions options;
  options.world = 1;
  options.dry_run = true;
  run(options, [](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"x", 1}});
    const DistTensor x = zeros({1 << 20}, mesh, {}, DType::kF32);
    const size_t most = decision_use(rt.context()).limit;
    for (size_t i = 0; i < most + 100; ++i)
      slice(x, 0, static_cast<int64_t>(i), static_cast<int64_t>(i) + 1);
    EXPECT_LE(decision_use(rt.context()).entries, most);
    EXPECT_LE(most, size_t{1} << 14);
  });
}

// Counts how often its rule is bound, which is once for each decision made.
class Counted : public Op {
 public:
  Counted() : Op("counted", {}) {}
  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs&) const override {
    ++bound;
    return BoundRule(Rule("ij -> ij"), shapes, name());
  }
  void compute(Compute&) const override {}
  std::vector<Sample> samples() const override { return {}; }
  mutable std::atomic<int> bound = 0;
};

TEST(Decisions, AreMadeOnceForTheRanksOfAProcess) {
  static const Counted op;
  const Mesh mesh = Mesh::parse("x=3");
  for (const int before : {0, 1}) {  // each run decides anew
    std::atomic<int> turn = 0;
    run(3, [&](Runtime& rt) {
      while (turn != rt.rank()) std::this_thread::yield();
      const OpInput in{Spec::get(mesh, {7, 2}, parse_layout("S0", mesh, {7, 2}),
                                 DType::kF32)};
      const auto made = decide(op, {&in, 1});
      ++turn;
      EXPECT_EQ(op.bound, before + 1);
      EXPECT_EQ(made->out.at(0), in.spec);
      // The shapes of a rank's parts are its own.
      EXPECT_EQ(made->out_local.at(0),
                in.spec->local_shape(rt.context().coordinate(mesh)));
      EXPECT_EQ(decide(op, {&in, 1}), made);
    });
  }
}

// The cache of executions is bounded by the weight of what it keeps.
TEST(Executions, AreBounded) {
  RunOptions options;
  options.world = 2;
  options.dry_run = true;
  run(options, [](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"x", 2}});
    // Moves 16 tensors in one call, so that each cached execution is heavy.
    const auto move = [&](int64_t n) {
      std::vector<DistTensor> list;
      std::vector<SpecRef> to;
      for (int64_t i = 0; i < 16; ++i) {
        list.push_back(zeros({n + i}, mesh, "S0", DType::kF32));
        to.push_back(Spec::replicated(mesh, {n + i}, DType::kF32));
      }
      relayout(list, to);
    };
    const CacheUse before = execution_use(rt.context());
    move(1);
    const size_t weight = execution_use(rt.context()).weight - before.weight;
    ASSERT_GE(weight, 50u);
    const int64_t moves = static_cast<int64_t>(2 * before.limit / weight);
    for (int64_t i = 0; i < moves; ++i) move(2 + i);
    const CacheUse after = execution_use(rt.context());
    EXPECT_LE(after.weight, after.limit);
    EXPECT_GE(after.weight, after.limit / 3);
    // The newest execution is still in the cache.
    move(1 + moves);
    EXPECT_EQ(execution_use(rt.context()).misses, after.misses);
  });
}

// A program whose lengths grow holds only as many specs as the caches do. Specs
// were never freed, and a new length at every step kept 1 KB for each of its
// specs.

TEST(GrowingLengths, KeepNoMoreThanTheCachesHold) {
  RunOptions options;
  options.world = 2;
  options.dry_run = true;
  run(options, [](Runtime& rt) {
    constexpr int64_t kLengths = 40000;
    const Mesh mesh = rt.mesh({{"x", 2}});
    const DistTensor kept = DistTensor::empty(
        Spec::replicated(mesh, {kLengths + 1, 7}, DType::kF32));
    const Spec* const spec = kept.spec();
    for (int64_t n = 1; n <= kLengths; ++n) slice(kept, 0, 0, n);
    const CacheUse decisions = decision_use(rt.context());
    EXPECT_LE(decisions.entries, decisions.limit);
    // The caches and the thread hold less than half as many specs, and at most
    // half of the table's entries can be freed.
    EXPECT_LE(Spec::use().entries, size_t{kLengths * 3 / 4});
    // A tensor that still exists keeps its spec.
    EXPECT_EQ(Spec::replicated(mesh, {kLengths + 1, 7}, DType::kF32), spec);
    EXPECT_EQ(spec->shape()[0], kLengths + 1);
  });
}

// A view, window, permutation or concatenation of a parameter counts as a
// parameter: no operator moves it, whatever the prices are.

DistTensor numbers(const Shape& s, const Mesh& m, const Placements& p,
                   uint64_t stream = 1) {
  return randn(s, m, p, DType::kF64, {3, stream});
}

TEST(ParametersStay, ThroughViews) {
  const Mesh mesh = Mesh::parse("tp=2");
  run(2, [&](Runtime&) {
    const DistTensor w = numbers({4, 8}, mesh, "S0").as_parameter();
    EXPECT_EQ(transpose(w, 0, 1).keep(), Keep::kStay);
    EXPECT_EQ(permute(w, {1, 0}).keep(), Keep::kStay);
    EXPECT_EQ(view(w, {4, 2, 4}).keep(), Keep::kStay);
    EXPECT_EQ(reshape(w, {2, 2, 8}).keep(), Keep::kStay);
    EXPECT_EQ(slice(w, 0, 1, 3).keep(), Keep::kStay);
    EXPECT_EQ(cat({w, w}, 1).keep(), Keep::kStay);
    EXPECT_EQ(cat({w, w.detach() * 2.0}, 1).keep(), Keep::kMove);
    EXPECT_EQ(transpose(w * 2.0, 0, 1).keep(), Keep::kMove);
  });
}

TEST(ParametersStay, NoTransposeIsGathered) {
  // With so many more rows than columns it is cheaper to gather the weight.
  const Mesh mesh = Mesh::parse("tp=2");
  run(2, [&](Runtime& rt) {
    const DistTensor x = numbers({512, 4}, mesh, "S0");
    DistTensor w = numbers({4, 4}, mesh, "S0");
    EXPECT_EQ(matmul(x, transpose(w, 0, 1)).layout().to_string(mesh), "S0");
    w = w.detach().as_parameter();
    const DistTensor t = transpose(w, 0, 1);
    rt.context().record = true;
    EXPECT_EQ(matmul(x, t).layout().to_string(mesh), "S1");
    for (const CommEvent& e : rt.context().events)
      EXPECT_GE(e.predicted, x.local().bytes() / 2) << e.op;
  });
}

TEST(ParametersStay, WhatWouldMoveThemIsRefused) {
  const Mesh mesh = Mesh::parse("a=3");
  run(3, [&](Runtime& rt) {
    const DistTensor w = numbers({6}, mesh, "S0").as_parameter();
    rt.context().record = true;
    const std::string e = testing::error_of([&] { reshape(w, {2, 3}); });
    EXPECT_NE(
        e.find("[reshape] there is no way to compute on f64[6](S0) (parameter) "
               "without sending a parameter"),
        e.npos)
        << e;
    EXPECT_TRUE(rt.context().events.empty());
  });
}

TEST(ParametersStay, UnderAForcedAssignment) {
  const Mesh mesh = Mesh::parse("tp=2");
  run(2, [&](Runtime& rt) {
    const DistTensor x = numbers({4, 6}, mesh, "R");
    const DistTensor w = numbers({6, 8}, mesh, "S1").as_parameter();
    // An assignment that splits the rows of x, for which the weight is
    // gathered.
    const OpInput split[] = {
        {x.spec()->with(parse_layout("S0", mesh, x.shape()))},
        {w.spec()->with(Layout::replicated(w.shape()))}};
    const Assignment rows = decide(matmul_op(), split)->assignment;
    rt.context().record = true;
    const DistTensor both[] = {x, w};
    EXPECT_EQ(apply1(matmul_op(), both, {}, &rows).layout().to_string(mesh),
              "S1");
    EXPECT_TRUE(rt.context().events.empty());
  });
}

}  // namespace
}  // namespace dtensor
