// SPDX-License-Identifier: Apache-2.0
// Parameters that are gathered on use: what operators see of them, what is
// sent, and how long gathered copies are held.
#include "dtensor/gather.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "dtensor/autograd.h"
#include "dtensor/dtensor.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "dtensor/scopes.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;

constexpr int64_t kN = 12, kBytes = kN * kN * 8;

DistTensor numbers(const Shape& s, const Mesh& m, const Placements& p,
                   uint64_t stream) {
  return randn(s, m, p, DType::kF64, {3, stream});
}

std::vector<DistTensor> weights(const Mesh& mesh, int n) {
  std::vector<DistTensor> all;
  for (int i = 0; i < n; ++i)
    all.push_back(
        numbers({kN, kN}, mesh, {{"dp", Shard(0)}}, 10 + uint64_t(i)));
  return all;
}

DistTensor through(const std::vector<DistTensor>& ws, DistTensor x) {
  for (const DistTensor& w : ws) x = tanh(matmul(x, w));
  return sum(x);
}

struct Sent {
  explicit Sent(Runtime& rt) : context(rt.context()) {
    context.record = true;
    context.events.clear();
  }
  ~Sent() { context.record = false; }
  // The number of gathers of a whole weight since the last call.
  int64_t gathers() {
    int64_t n = 0;
    for (const CommEvent& e : context.events)
      n += e.kind == StepKind::kAllGather && e.predicted == kBytes / 2;
    context.events.clear();
    return n;
  }
  int64_t held() const {
    return context.allocator->stats().of(MemoryKind::kGathered).current_bytes;
  }
  RankContext& context;
};

TEST(Gather, OperatorsSeeItWhole) {
  const Mesh mesh = Mesh::parse("dp=2,tp=2");
  run(4, [&](Runtime&) {
    const DistTensor x = numbers({6, kN}, mesh, {{"dp", Shard(0)}}, 1);
    const DistTensor whole =
        numbers({kN, kN}, mesh, {{"tp", Shard(1)}}, 2).as_parameter();
    DistTensor parts = whole.detach().redistribute("S0,S1");
    parts.gather_on_use("R,S1");
    EXPECT_EQ(parts.keep(), Keep::kGatherOnUse);
    EXPECT_EQ(parts.layout().to_string(mesh), "S0,S1");
    EXPECT_EQ(parts.use_spec(), whole.spec());
    const DistTensor y = matmul(x, whole), z = matmul(x, parts);
    EXPECT_EQ(z.spec(), y.spec());
    EXPECT_EQ(z.to_string(), y.to_string());
    // The gradient has the layout in which the parameter rests.
    const DistTensor g = grad(sum(square(z)), {parts})[0];
    EXPECT_EQ(g.spec(), parts.spec());
    EXPECT_EQ(g.full().to_doubles(),
              grad(sum(square(y)), {whole})[0].full().to_doubles());
    // Views and slices are of the gathered copy. as_parameter() ends gathering
    // on use.
    EXPECT_EQ(transpose(parts, 0, 1).layout().to_string(mesh), "R,S0");
    EXPECT_EQ(slice(parts, 0, 0, 5).layout().to_string(mesh), "R,S1");
    EXPECT_EQ(mul(parts, parts).full().to_doubles(),
              mul(whole, whole).full().to_doubles());
    EXPECT_EQ(parts.detach().use_spec(), whole.spec());
    EXPECT_EQ(parts.as_parameter().use_spec(), parts.spec());
  });
}

// If the budget has no room for all copies, the least recently used one is
// freed.
TEST(Gather, TheLatestUsedStay) {
  const Mesh mesh = Mesh::parse("dp=2");
  run(2, [&](Runtime& rt) {
    auto ws = weights(mesh, 3);
    for (DistTensor& w : ws) w.gather_on_use({});
    rt.context().gather_budget = 4 * kBytes;  // half of it: two copies
    Sent sent(rt);
    DistTensor x = numbers({6, kN}, mesh, "S0", 1);
    const auto use = [&](size_t i) {
      x = tanh(matmul(x, ws[i]));
      return sent.gathers();
    };
    EXPECT_EQ(use(0), 1);
    EXPECT_EQ(use(1), 1);
    EXPECT_EQ(use(0), 0);
    EXPECT_EQ(use(2), 1);
    EXPECT_EQ(use(0), 0);
    EXPECT_EQ(use(1), 1);
  });
}

TEST(Gather, FreedBehindTheOperator) {
  const Mesh mesh = Mesh::parse("dp=2");
  run(2, [&](Runtime& rt) {
    auto ws = weights(mesh, 3);
    for (DistTensor& w : ws) w.gather_on_use({});
    const DistTensor x = numbers({6, kN}, mesh, "S0", 1);
    rt.context().gather_budget = 100 * kBytes;
    Sent sent(rt);
    {
      // Without a graph, no backward pass will need the copies.
      const NoGrad no_grad;
      through(ws, x);
      EXPECT_EQ(sent.held(), 0);
      EXPECT_EQ(sent.gathers(), 3);
    }
    {
      const DistTensor loss = through(ws, x);
      EXPECT_EQ(sent.held(), 3 * kBytes);
      EXPECT_EQ(sent.gathers(), 3);
      const auto g = grad(loss, ws, {.release_graph = true});
      EXPECT_EQ(sent.held(), 0);
      EXPECT_EQ(sent.gathers(), 0);
    }
    DistTensor loss = through(ws, x);
    EXPECT_EQ(sent.held(), 3 * kBytes);
    loss = DistTensor();  // and the graph with it
    EXPECT_EQ(sent.held(), 0);
  });
}

// Half of the budget is for copies that the backward pass needs. The last copy
// is always held.
TEST(Gather, HeldAsTheBudgetAllows) {
  const Mesh mesh = Mesh::parse("dp=2");
  run(2, [&](Runtime& rt) {
    auto ws = weights(mesh, 5);
    for (DistTensor& w : ws) w.gather_on_use({});
    const DistTensor x = numbers({6, kN}, mesh, "S0", 1).set_requires_grad();
    std::vector<DistTensor> wanted = ws;
    wanted.push_back(x);
    struct Case {
      int64_t budget, held, back;
    };
    for (const Case& c :
         {Case{0, 1, 4}, Case{2 * kBytes, 1, 4}, Case{4 * kBytes, 2, 3},
          Case{5 * kBytes, 2, 3}, Case{10 * kBytes, 5, 0}}) {
      rt.context().gather_budget = c.budget;
      Sent sent(rt);
      const DistTensor loss = through(ws, x);
      EXPECT_EQ(sent.held(), c.held * kBytes) << c.budget;
      EXPECT_EQ(sent.gathers(), 5);
      grad(loss, wanted, {.release_graph = true});
      EXPECT_EQ(sent.gathers(), c.back) << c.budget;
      EXPECT_EQ(sent.held(), 0);
    }
  });
}

// The other half is for gathers ahead of use, in the order of the previous
// step. They change when something is sent, but not what.
TEST(Gather, AheadIsTheSameEarlier) {
  const Mesh mesh = Mesh::parse("dp=2");
  run(2, [&](Runtime& rt) {
    auto ws = weights(mesh, 6);
    for (DistTensor& w : ws) w.gather_on_use({});
    const DistTensor x = numbers({6, kN}, mesh, "S0", 1).set_requires_grad();
    std::vector<DistTensor> wanted = ws;
    wanted.push_back(x);
    const auto step = [&](bool other) {
      const DistTensor loss =
          other ? sum(matmul(matmul(x, ws[4]), ws[1])) : through(ws, x);
      const double value = loss.item();
      const auto g = grad(loss, wanted, {.release_graph = true});
      EXPECT_NE(g[4].local().at(0), 0);
      end_gather_step(rt.context());
      return value;
    };
    Sent sent(rt);
    const double first = step(false);
    const int64_t gathers = sent.gathers();
    EXPECT_EQ(gathers, 6 + 5);
    // Half of the budget holds two copies, the other half is for two gathers
    // ahead.
    rt.context().gather_budget = 4 * kBytes;
    step(false);
    EXPECT_EQ(sent.gathers(), 6 + 4);
    // A step with another order gathers nothing ahead, not even when it uses
    // the weight that the previous order has next.
    rt.context().allocator->reset_peak();
    const double other = step(true);
    EXPECT_EQ(sent.gathers(), 2);  // both copies are held
    EXPECT_EQ(
        rt.context().allocator->stats().of(MemoryKind::kGathered).peak_bytes,
        2 * kBytes);
    for (int i = 0; i < 3; ++i) {
      rt.context().allocator->reset_peak();
      EXPECT_EQ(step(false), first);
      EXPECT_EQ(sent.gathers(), 6 + 4) << i;
      EXPECT_LE(
          rt.context().allocator->stats().of(MemoryKind::kGathered).peak_bytes,
          5 * kBytes);
    }
    EXPECT_EQ(step(true), other);
    EXPECT_EQ(sent.held(), 0);
  });
}

TEST(Gather, ChangedValuesAreGatheredAgain) {
  const Mesh mesh = Mesh::parse("dp=2");
  run(2, [&](Runtime& rt) {
    rt.context().gather_budget = 100 * kBytes;
    DistTensor w = weights(mesh, 1)[0];
    w.gather_on_use({});
    const DistTensor x = numbers({6, kN}, mesh, "S0", 1);
    const DistTensor loss = sum(square(matmul(x, w)));
    w.local().mutable_ptr<double>()[0] += 1;
    EXPECT_NE(sum(square(matmul(x, w))).item(), loss.item());
    const std::string e = error_of([&] { grad(loss, {w}); });
    EXPECT_NE(e.find("was changed in place after it was used"), e.npos) << e;
  });
}

// Without a layout to gather into, the parameter is gathered where that is
// cheapest. The graph holds the part then too, and not the copy.
TEST(Gather, TheGraphHoldsTheParts) {
  const Mesh mesh = Mesh::parse("dp=2");
  run(2, [&](Runtime& rt) {
    const DistTensor x = numbers({512, kN}, mesh, "S0", 1).set_requires_grad();
    DistTensor w = numbers({kN, kN}, mesh, "S1", 2);
    w.as_parameter(Keep::kGatherOnUse);
    Sent sent(rt);
    const auto stats = [&] { return rt.context().allocator->stats(); };
    const int64_t before = stats().current_bytes;
    const DistTensor y = matmul(x, w);
    EXPECT_EQ(sent.gathers(), 1);
    EXPECT_EQ(stats().current_bytes - before, y.local().bytes());
    const auto g = grad(sum(square(y)), {x, w});
    EXPECT_EQ(sent.gathers(), 1);
    const DistTensor whole = w.detach().redistribute("R").as_parameter();
    const auto want = grad(sum(square(matmul(x, whole))), {x, whole});
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(g[size_t(i)].full().to_doubles(),
                want[size_t(i)].full().to_doubles());
  });
}

TEST(Gather, SecondDerivatives) {
  const Mesh mesh = Mesh::parse("dp=3");
  run(3, [&](Runtime&) {
    const DistTensor x = numbers({5, kN}, mesh, "S0", 1);
    std::vector<std::vector<double>> found;
    for (const bool parts : {false, true}) {
      DistTensor w = numbers({kN, kN}, mesh, "R", 2);
      if (parts)
        w = w.redistribute("S0").gather_on_use({});
      else
        w.as_parameter();
      const DistTensor loss = sum(tanh(matmul(tanh(matmul(x, w)), w)));
      const DistTensor g = grad(loss, {w}, {.create_graph = true})[0];
      found.push_back(grad(sum(square(g)), {w})[0].full().to_doubles());
    }
    for (size_t i = 0; i < found[0].size(); ++i)
      EXPECT_NEAR(found[1][i], found[0][i], 1e-12);
  });
}

TEST(Gather, WhatCannotBeIsRefused) {
  const Mesh mesh = Mesh::parse("dp=2");
  run(2, [&](Runtime&) {
    DistTensor w = numbers({4, 4}, mesh, "S0", 1);
    EXPECT_EQ(error_of([&] { w.gather_on_use("S1"); }),
              "[gather_on_use] f64[4, 4](S0) cannot become f64[4, 4](S1) by "
              "slicing and gathering alone; place the parameter in the layout "
              "in which it is used, split further over other axes");
    EXPECT_EQ(w.keep(), Keep::kMove);  // nothing was done
    DistTensor partial = numbers({4}, mesh, "P", 1);
    EXPECT_NE(error_of([&] {
                partial.gather_on_use({});
              }).find("and gathering alone"),
              std::string::npos);
    EXPECT_EQ(error_of([&] { w.set_grad_layout("P"); }),
              "[set_grad_layout] the gradient of f64[4, 4](S0) cannot be laid "
              "out as f64[4, 4](P), which is partial; write R or S<dim>");
    EXPECT_EQ(
        error_of([&] { DistTensor().gather_on_use({}); }),
        "[gather_on_use] an undefined tensor was used; assign one to it first");
    EXPECT_EQ(error_of([&] { DistTensor().set_grad_layout({}); }),
              "[set_grad_layout] an undefined tensor was used; assign one to "
              "it first");
  });
}

// Under a CommBudget nothing is gathered ahead, and a gather beyond it throws
// Error.
TEST(Gather, CountsAgainstTheBudgetOfTheScope) {
  const Mesh mesh = Mesh::parse("dp=2");
  run(2, [&](Runtime&) {
    DistTensor w = weights(mesh, 1)[0];
    w.gather_on_use({});
    const DistTensor x = numbers({6, kN}, mesh, "S0", 1);
    {
      const CommBudget budget(kBytes / 2);
      const NoGrad no_grad;
      matmul(x, w);
      EXPECT_EQ(budget.left(), 0);
    }
    const NoComm nothing;
    EXPECT_EQ(error_of([&] { matmul(x, w); }),
              "[matmul] gathering its parameters needs 576 bytes of "
              "communication, but the budget has 0 left; raise the budget, or "
              "communicate outside its scope");
  });
}

// Guards a fix: gather_on_use() failed if other steps were cheaper than a
// gather. That happens between nodes of GPUs: a group of all ranks uses the
// network cards of all of them, and a group of one rank a node uses a single
// card.

CostTable between_nodes() {
  CostTable cost;
  const AxisCost slow{{1000, 1000.0}, {}}, fast{{1000, 1.0}, {}};
  cost.axes = {slow, fast};
  cost.groups = {{0b11, fast}};
  return cost;
}

void check(bool dry) {
  RunOptions options;
  options.world = 4;
  options.cost = between_nodes();
  options.dry_run = dry;
  run(options, [&](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"fsdp", 2}, {"tp", 2}});
    const Spec* at =
        Spec::get(mesh, {64, 32},
                  parse_layout("[{tp,fsdp},{}]", mesh, {64, 32}), DType::kF32);
    DistTensor w = reshape(arange(0, 64 * 32, 1, mesh), {64, 32})
                       .redistribute("[{tp,fsdp},{}]");
    // The plan has steps other than gathers. Otherwise the test would show
    // nothing.
    const Plan plan = rt.context().planner.plan(
        at, at->with(parse_layout("R,S0", mesh, {64, 32})));
    EXPECT_TRUE(
        std::any_of(plan.steps.begin(), plan.steps.end(), [](const Step& s) {
          return sends(s.kind) && s.kind != StepKind::kAllGather;
        }));
    w.gather_on_use({{"tp", Shard(0)}});
    const DistTensor x = full({8, 32}, 1.0, mesh, {{"fsdp", Shard(0)}});
    const DistTensor y = matmul(x, transpose(w, 0, 1));
    const DistTensor g = grad(sum(y), {w})[0];
    EXPECT_EQ(g.spec(), w.spec());
    if (dry) return;
    EXPECT_DOUBLE_EQ(sum(y).item(), 8.0 * 2047 * 2048 / 2);
    EXPECT_DOUBLE_EQ(sum(g).item(), 8.0 * 64 * 32);
  });
}

TEST(GatherUnderPrices, InADryRun) { check(true); }
TEST(GatherUnderPrices, OnRanks) { check(false); }

// A parameter still cannot be re-split on use, whatever the plan for that is.
TEST(GatherUnderPrices, OtherMovesAreRefused) {
  RunOptions options;
  options.world = 4;
  options.cost = between_nodes();
  EXPECT_THROW(run(options,
                   [](Runtime& rt) {
                     const Mesh mesh = rt.mesh({{"fsdp", 2}, {"tp", 2}});
                     full({64, 32}, 1.0, mesh, {{"tp", Shard(0)}})
                         .gather_on_use({{"tp", Shard(1)}});
                   }),
               Error);
}

// Guards a fix: if an operator moved one of its parameters, it did not gather
// another one that is gathered on use, and computed without that one's values.

constexpr int64_t kRows = 512, kIn = 256, kOut = 128;

double x_at(int64_t i) { return static_cast<double>(i % 7) - 3; }
double w_at(int64_t i) { return static_cast<double>(i % 5) - 2; }
double b_at(int64_t i) { return static_cast<double>(i % 3); }

template <class F>
std::vector<double> list(int64_t n, F at) {
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(at(i));
  return values;
}

TEST(GatheredBesideMoved, ABiasOnUseAndAWeightThatMoves) {
  const Mesh m = Mesh::parse("dp=2");
  run(2, [&](Runtime&) {
    const auto make = [&](const Shape& shape, const std::vector<double>& v) {
      return DistTensor::from_global(Tensor::from(shape, v.data()), m, "S0");
    };
    const DistTensor x = make({kRows, kIn}, list(kRows * kIn, x_at));
    DistTensor w = make({kOut, kIn}, list(kOut * kIn, w_at));
    DistTensor b = make({kOut}, list(kOut, b_at));
    w.as_parameter(Keep::kGatherOnUse);
    b.gather_on_use("R");
    std::vector<double> want;
    for (int64_t i = 0; i < kRows; ++i)
      for (int64_t o = 0; o < kOut; ++o) {
        double sum = b_at(o);
        for (int64_t k = 0; k < kIn; ++k)
          sum += x_at(i * kIn + k) * w_at(o * kIn + k);
        want.push_back(sum);
      }
    const NoGrad no_grad;
    EXPECT_EQ(linear(x, w, b).full().to_doubles(), want);
  });
}

}  // namespace
}  // namespace dtensor
