// SPDX-License-Identifier: Apache-2.0
// Carries out plans: the bytes and the memory that a plan predicts must be
// those that are counted, also if the plan works in parts or combines means.
#include "dtensor/execution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <vector>

#include "dtensor/comm_table.h"
#include "dtensor/dist_tensor.h"
#include "dtensor/execute.h"
#include "dtensor/placement/plan.h"
#include "dtensor/redistribute.h"
#include "dtensor/runtime.h"
#include "tests/dtensor/message_passing.h"

namespace dtensor {
namespace {

// Steps of this kind cost next to nothing, and all others are dear. Plans
// therefore all-reduce (or all-gather) first and slice then, in parts that fit
// into a small block.
CostTable costs_nothing(StepKind kind, int axes) {
  CostTable cost;
  cost.block_bytes = 96;
  AxisCost axis;
  axis.alpha_ps = 1'000'000'000;
  axis.kinds[static_cast<size_t>(kind)] = LinkCost{0, 0.001};
  cost.axes.assign(static_cast<size_t>(axes), axis);
  return cost;
}

// Each part is all-reduced alone, in chunks of its own, which are not those of
// an all-reduce of the whole. The predicted bytes must take that into account.
TEST(ExecutionTest, PredictsAnAllReduceInParts) {
  for (bool messages : {false, true})
    for (int64_t one_shot : {0, 1 << 20}) {
      RunOptions options;
      options.world = 4;
      options.mesh = "2x2";
      options.cost = costs_nothing(StepKind::kAllReduce, 2);
      options.cost.one_shot_bytes = one_shot;
      if (messages) options.backend = testing::message_passing_backend;
      std::mutex mutex;
      std::vector<std::vector<CommEvent>> events(4);
      std::atomic<int> other{0};
      run(options, [&](Runtime& rt) {
        RankContext& ctx = rt.context();
        const Mesh mesh = rt.mesh();
        const Shape shape{7, 5};
        const auto spec = [&](const char* text) {
          return Spec::get(mesh, shape, parse_layout(text, mesh, shape),
                           DType::kF64);
        };
        const Spec *from = spec("P,P"), *to = spec("S0,S1");
        const Plan& plan = ctx.planner.plan(from, to);
        int64_t whole = 0;
        for (const Step& s : plan.steps)
          if (s.kind == StepKind::kAllReduce) whole += s.bytes;
        ASSERT_GT(whole, 0);
        ASSERT_GT(plan.chunks, 1);
        ctx.record = true;
        const Tensor source = Tensor::full(shape, DType::kF64, 1);
        const Tensor moved = redistribute_local(source, from, to);
        EXPECT_EQ(moved.at(0), 4);
        for (const CommEvent& e : ctx.events) {
          EXPECT_EQ(e.kind, StepKind::kAllReduce);
          EXPECT_GT(e.times, 1);
          other += e.predicted != whole;
        }
        std::lock_guard lock(mutex);
        events[static_cast<size_t>(rt.rank())] = ctx.events;
      });
      for (const CommEvent& e : merge_events(events))
        EXPECT_EQ(e.predicted, e.counted) << messages << one_shot;
      // Otherwise the parts would send what the whole sends, and show nothing.
      if (!one_shot) {
        EXPECT_GT(other, 0);
      }
    }
}

// Each part is gathered into memory of its own, and only what the slice leaves
// of it is copied to the destination.
TEST(ExecutionTest, GathersInPartsAndSlicesThem) {
  RunOptions options;
  options.world = 2;
  options.cost = costs_nothing(StepKind::kAllGather, 1);
  run(options, [&](Runtime& rt) {
    const Mesh mesh = rt.mesh();
    std::vector<double> values, want;
    for (int i = 0; i < 42; ++i) {
      values.push_back(i);
      if (i % 6 / 3 == rt.rank()) want.push_back(i);
    }
    const DistTensor x = DistTensor::from_global(
        Tensor::from({7, 6}, values.data()), mesh, "S0");
    const DistTensor y = x.redistribute("S1");
    const Plan& plan = rt.context().planner.plan(x.spec(), y.spec());
    ASSERT_GT(plan.chunks, 1);
    ASSERT_EQ(plan.steps.size(), 2u);
    EXPECT_EQ(plan.steps[0].kind, StepKind::kAllGather);
    EXPECT_EQ(plan.steps[1].kind, StepKind::kSlice);
    EXPECT_EQ(y.local().to_doubles(), want);
  });
}

// The (sum, count) pairs of a mean are freed as soon as the values are made of
// them, and so is the source if nobody else holds it. The plan predicts the
// peak.
TEST(ExecutionTest, MemoryOfAMean) {
  for (const char* to_text : {"R", "S0"})
    for (bool held : {true, false})
      run(3, [&](Runtime& rt) {
        RankContext& ctx = rt.context();
        const Mesh mesh = rt.mesh();
        const Shape shape{30, 16};
        const auto spec = [&](const char* text) {
          return Spec::get(mesh, shape, parse_layout(text, mesh, shape),
                           DType::kF64);
        };
        const Spec *from = spec("P(mean)"), *to = spec(to_text);
        const Move move{from, to};
        const auto e = execution(ctx, {&move, 1});
        const int64_t before = ctx.allocator->stats().current_bytes;
        ctx.allocator->reset_peak();
        Tensor part = Tensor::full({2, 30, 16}, DType::kF64, 2);
        const Tensor source = held ? part : Tensor();
        execute(ctx, *e, {&part, 1});
        EXPECT_EQ(part.at(0), 1);
        const int64_t peak = ctx.allocator->stats().peak_bytes - before;
        EXPECT_EQ(peak, e->plan().peak_bytes - (held ? 0 : part.bytes()))
            << to_text;
      });
}

std::set<int64_t> numbers(const std::vector<CommEvent>& events) {
  std::set<int64_t> all;
  for (const CommEvent& e : events) all.insert(e.collective);
  return all;
}

// Every collective has its own number, whichever thread carries it out, and the
// table counts these numbers.
TEST(ExecutionTest, CollectivesHaveNumbersOfTheirOwn) {
  run(2, [](Runtime& rt) {
    RankContext& ctx = rt.context();
    const Mesh mesh = rt.mesh();
    const DistTensor x = DistTensor::from_global(
        Tensor::full({8, 4}, DType::kF32, 1), mesh, "S0");
    const DistTensor y = DistTensor::from_global(
        Tensor::full({6, 4}, DType::kF32, 1), mesh, "S0");
    ctx.record = true;
    x.redistribute("R");
    x.redistribute("S1");
    const DistTensor a = x.redistribute_async("S1");
    const DistTensor b = y.redistribute_async("R");
    const DistTensor c = y.redistribute_async("S1");
    for (const DistTensor& t : {a, b, c}) t.local();
    y.redistribute("R").local();
    EXPECT_EQ(numbers(ctx.events).size(), ctx.events.size());
    // Two of the six moves repeat an earlier one, whose result is used again.
    EXPECT_EQ(ctx.events.size(), 4u);
    int64_t rows = 0;
    for (const CommRow& r : comm_rows(ctx.events)) rows += r.count;
    EXPECT_EQ(rows, static_cast<int64_t>(ctx.events.size()));
    // The same holds for the merged events of several ranks.
    const std::vector<std::vector<CommEvent>> ranks{ctx.events, ctx.events};
    EXPECT_EQ(numbers(merge_events(ranks)).size(), ctx.events.size());
  });
}

// Running an execution does not change it. So it can run while another one of
// the same rank is under way, and again after a failure.
TEST(ExecutionTest, IsTheSameAfterwards) {
  run(2, [](Runtime& rt) {
    RankContext& ctx = rt.context();
    const Mesh mesh = rt.mesh();
    const Shape shape{4, 4};
    const Move move{
        Spec::get(mesh, shape, parse_layout("S0", mesh, shape), DType::kF32),
        Spec::replicated(mesh, shape, DType::kF32)};
    const auto e = execution(ctx, {&move, 1});
    EXPECT_EQ(e, execution(ctx, {&move, 1}));
    for (int i = 0; i < 3; ++i) {
      Tensor part = Tensor::full({2, 4}, DType::kF32, i + rt.rank());
      execute(ctx, *e, {&part, 1});
      EXPECT_EQ(part.at(0), i);
      EXPECT_EQ(part.at(15), i + 1);
    }
  });
}

}  // namespace
}  // namespace dtensor
