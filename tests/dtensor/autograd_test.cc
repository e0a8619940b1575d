// SPDX-License-Identifier: Apache-2.0
// Differentiates redistributions: the layouts and values of cotangents, and the
// number of collectives that combine gradients.
#include "dtensor/autograd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"
#include "dtensor/runtime.h"
#include "dtensor/scopes.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;

DistTensor numbers(const Shape& s, const Mesh& m, const Placements& p,
                   uint64_t stream = 1) {
  return randn(s, m, p, DType::kF64, {3, stream});
}

DistTensor add_up(const DistTensor& a, const DistTensor& b) {
  return add(a, b);
}

// Moves x from layout `source` to layout `to`, with relayout() if `lazy`, and
// returns the layout of its cotangent if that of the result has `cotangent`.
std::string cotangent_layout(const Mesh& mesh, const char* source,
                             const char* to, const char* cotangent,
                             bool lazy = false) {
  DistTensor x = numbers({4, 6}, mesh, source);
  x.set_requires_grad();
  const Spec* spec = x.spec()->with(parse_layout(to, mesh, {4, 6}));
  const DistTensor y = lazy ? relayout(x, spec) : x.redistribute(spec);
  const DistTensor g = numbers({4, 6}, mesh, cotangent, 7);
  const std::vector<DistTensor> back =
      backward_pass({&y, 1}, {&g, 1}, {&x, 1}, {}, add_up);
  // The cotangent keeps its value, whatever the layout.
  const Tensor got = back[0].full(), want = g.full();
  for (int64_t i = 0; i < want.numel(); ++i)
    EXPECT_NEAR(got.at(i), want.at(i), 1e-12);
  return back[0].layout().to_string(mesh);
}

TEST(RedistributeGrad, CotangentsGoWhereTheTableSays) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    struct Row {
      const char *source, *to, *cotangent, *back;
    };
    for (const Row& r : {Row{"S0", "R", "R", "S0"},
                         {"S0", "S1", "S1", "S0"},
                         {"S0", "R", "P", "S0"},
                         {"S0", "S0", "R", "S0"},
                         {"R", "S0", "S0", "R"},
                         {"R", "P", "R", "R"},
                         {"R", "S1", "P", "P"},
                         {"R", "S1", "P(max)", "R"},
                         {"P", "R", "R", "R"},
                         {"P", "S0", "S0", "R"},
                         {"P", "R", "P", "R"},
                         {"P(avg)", "R", "S1", "R"},
                         {"P(max)", "R", "P", "R"},
                         {"P(prod)", "S0", "S0", "R"}})
      EXPECT_EQ(cotangent_layout(mesh, r.source, r.to, r.cotangent), r.back)
          << r.source << " -> " << r.to << ", cotangent " << r.cotangent;
  });
}

TEST(RedistributeGrad, OnTwoAxesEachGoesItsOwnWay) {
  const Mesh mesh = Mesh::parse("a=2,b=2");
  run(4, [&](Runtime&) {
    EXPECT_EQ(cotangent_layout(mesh, "S0,R", "R,R", "R,P"), "S0,P");
    EXPECT_EQ(cotangent_layout(mesh, "S0,P", "S0,S1", "S0,S1"), "S0,R");
    EXPECT_EQ(cotangent_layout(mesh, "R,R", "S0,S0", "P,P"), "P,P");
  });
}

// relayout(), which operators insert, leaves a cotangent in the layout that it
// has.
TEST(RedistributeGrad, OperatorsLeaveTheMoveToTheConsumer) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime& rt) {
    rt.context().record = true;
    EXPECT_EQ(cotangent_layout(mesh, "S0", "R", "R", true), "R");
    EXPECT_EQ(cotangent_layout(mesh, "P", "R", "S1", true), "S1");
    // relayout() and redistribute() to one layout send the data once, but their
    // results share no memory.
    rt.context().events.clear();
    DistTensor x = numbers({4, 6}, mesh, "S0").set_requires_grad();
    const DistTensor lazy =
        relayout(x, x.spec()->with(Layout::replicated({4, 6})));
    const DistTensor mine = x.redistribute("R"), again = x.redistribute("R");
    EXPECT_EQ(rt.context().events.size(), 1u);
    EXPECT_NE(mine.local().storage(), lazy.local().storage());
    EXPECT_NE(mine.local().storage(), again.local().storage());
  });
}

// Compares gradients with finite differences of the same function on one rank.
TEST(RedistributeGrad, OfEveryPartialMatchesDifferences) {
  const Mesh mesh = Mesh::parse("a=2");
  const Shape shape{3, 2};
  // sum(w y sin(y)) of the whole value.
  auto loss_of = [&](const std::vector<double>& v) {
    double sum = 0;
    for (size_t i = 0; i < v.size(); ++i)
      sum += (1 + 0.5 * static_cast<double>(i)) * v[i] * std::sin(v[i]);
    return sum;
  };
  run(2, [&](Runtime& rt) {
    for (const char* op : {"P", "P(avg)", "P(max)", "P(min)", "P(prod)"})
      for (const char* to : {"R", "S0", "S1"}) {
        SCOPED_TRACE(std::string(op) + " -> " + to);
        Tensor part = Tensor::empty(shape, DType::kF64);
        for (int64_t i = 0; i < 6; ++i)
          part.mutable_ptr<double>()[i] =
              std::sin(2.3 * static_cast<double>(i + 1) +
                       static_cast<double>(rt.rank() * (i % 3 + 1)));
        DistTensor x = DistTensor::from_local(part, mesh, op, shape);
        const Tensor whole = x.full();
        std::vector<double> v(6);
        for (int64_t i = 0; i < 6; ++i) v[static_cast<size_t>(i)] = whole.at(i);
        x.set_requires_grad();
        std::vector<double> w(6);
        for (size_t i = 0; i < 6; ++i) w[i] = 1 + 0.5 * static_cast<double>(i);
        const DistTensor weights =
            DistTensor::from_global(Tensor::from(shape, w.data()), mesh, {});
        const DistTensor y = x.redistribute(to);
        const DistTensor loss = sum(weights * y * sin(y));
        EXPECT_NEAR(loss.item(), loss_of(v), 1e-12);
        const DistTensor g = grad(loss, {x})[0];
        EXPECT_EQ(g.layout().to_string(mesh), "R");
        for (size_t i = 0; i < 6; ++i) {
          std::vector<double> up = v, down = v;
          up[i] += 1e-6;
          down[i] -= 1e-6;
          EXPECT_NEAR(g.local().at(static_cast<int64_t>(i)),
                      (loss_of(up) - loss_of(down)) / 2e-6, 1e-8);
        }
      }
  });
}

TEST(RedistributeGrad, DoubleBackward) {
  const Mesh mesh = Mesh::parse("a=3");
  run(3, [&](Runtime&) {
    const DistTensor v = numbers({5, 4}, mesh, "S1", 2);
    for (const char* source : {"S0", "S1", "R"})
      for (const char* to : {"R", "S0", "S1"}) {
        DistTensor x = numbers({5, 4}, mesh, source).set_requires_grad();
        const DistTensor y = x.redistribute(to);
        const DistTensor g =
            grad(sum(y * y * y), {x}, {.create_graph = true})[0];
        const Tensor gg = grad(sum(g * v), {x})[0].full();
        const Tensor xs = x.full(), vs = v.full();
        for (int64_t i = 0; i < gg.numel(); ++i)
          EXPECT_NEAR(gg.at(i), 6 * xs.at(i) * vs.at(i), 1e-12)
              << source << " -> " << to;
      }
  });
}

TEST(RedistributeGrad, OtherTypesOnTheWire) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime& rt) {
    RankContext& ctx = rt.context();
    ctx.record = true;
    DistTensor x = randn({4, 8}, mesh, "S0", DType::kF32, {3, 1});
    x.set_requires_grad();
    RedistributeOptions options;
    options.forward_dtype = DType::kBF16;
    options.backward_dtype = DType::kF64;
    ctx.events.clear();
    const DistTensor y = x.redistribute("R", options);
    EXPECT_EQ(y.dtype(), DType::kBF16);
    ASSERT_EQ(ctx.events.size(), 1u);
    EXPECT_EQ(ctx.events[0].counted, 2 * 8 * 2);
    const Tensor all = x.full(), got = y.local();
    for (int64_t i = 0; i < all.numel(); ++i)
      EXPECT_EQ(got.at(i), static_cast<double>(static_cast<float>(
                               bf16(static_cast<float>(all.at(i))))));
    // Backward: bf16 partial sums are sent as f64, and the gradient is f32.
    const DistTensor g = randn({4, 8}, mesh, "P", DType::kBF16, {3, 5});
    ctx.events.clear();
    const DistTensor back =
        backward_pass({&y, 1}, {&g, 1}, {&x, 1}, {}, add_up)[0];
    EXPECT_EQ(back.spec(), x.spec());
    ASSERT_EQ(ctx.events.size(), 1u);
    EXPECT_EQ(ctx.events[0].counted, 2 * 8 * 8);
    const Tensor want = g.full();
    const Region mine = back.region();
    for (int64_t i = 0; i < 16; ++i)
      EXPECT_NEAR(back.local().at(i), want.at(mine[0][0].lo * 8 + i), 0.05);
    // The same layout, another type: nothing is sent.
    ctx.events.clear();
    options.forward_dtype = DType::kF64;
    EXPECT_EQ(x.redistribute("S0", options).dtype(), DType::kF64);
    EXPECT_TRUE(ctx.events.empty());

    options.forward_dtype = DType::kI32;
    const DistTensor p = randn({4}, mesh, "P", DType::kF32, {3, 1});
    EXPECT_EQ(
        error_of([&] { p.redistribute("R", options); }),
        "[redistribute] the partial values of f32[4](P) cannot be converted "
        "to i32 before they are combined; redistribute first, then cast");
    options.backward_dtype = DType::kI32;
    EXPECT_NE(error_of([&] {
                x.redistribute("R", options);
              }).find("backward_dtype is i32"),
              std::string::npos);
  });
}

TEST(RedistributeGrad, GradientsComeHomeTogether) {
  const Mesh mesh = Mesh::parse("dp=2");
  run(2, [&](Runtime& rt) {
    RankContext& ctx = rt.context();
    const DistTensor x = numbers({6, 4}, mesh, "S0", 9);
    std::vector<DistTensor> weights;
    for (uint64_t i = 0; i < 5; ++i)
      weights.push_back(numbers({4, 4}, mesh, "R", i).as_parameter());
    DistTensor h = x;
    for (const DistTensor& w : weights) h = tanh(matmul(h, w));
    ctx.record = true;
    ctx.events.clear();
    const std::vector<DistTensor> together = grad(sum(h), weights);
    std::set<int64_t> collectives;
    int64_t bytes = 0;
    for (const CommEvent& e : ctx.events) {
      EXPECT_EQ(e.kind, StepKind::kAllReduce);
      EXPECT_EQ(e.op, "grad");
      collectives.insert(e.collective);
      bytes += e.counted;
    }
    EXPECT_EQ(ctx.events.size(), 5u);
    EXPECT_EQ(collectives.size(), 1u);
    EXPECT_EQ(bytes, 5 * 16 * 8);
    for (size_t i = 0; i < weights.size(); ++i) {
      const Tensor alone = grad(sum(h), {weights[i]})[0].full();
      const Tensor here = together[i].full();
      for (int64_t k = 0; k < alone.numel(); ++k)
        EXPECT_EQ(alone.at(k), here.at(k));
    }
  });
}

TEST(RedistributeGrad, BetweenMeshes) {
  const Mesh from = Mesh::parse("a=2"), to({{"x", 3}}, {1, 2, 3});
  run(5, [&](Runtime& rt) {
    DistTensor x = numbers({5, 4}, from, "S0").set_requires_grad();
    const DistTensor y = x.redistribute(to, "S1");
    EXPECT_EQ(y.here(), rt.rank() >= 1 && rt.rank() <= 3);
    // Ranks that are in neither mesh run the same program.
    const DistTensor g = grad(sum(y * y * y), {x}, {.create_graph = true})[0];
    EXPECT_EQ(g.spec(), x.spec());
    EXPECT_EQ(g.here(), rt.rank() < 2);
    const DistTensor gg = grad(sum(g), {x})[0];
    if (!x.here()) return;
    for (int64_t i = 0; i < x.local().numel(); ++i) {
      const double v = x.local().at(i);
      EXPECT_NEAR(g.local().at(i), 3 * v * v, 1e-12);
      EXPECT_NEAR(gg.local().at(i), 6 * v, 1e-12);
    }
  });
}

TEST(RedistributeGrad, Asynchronous) {
  const Mesh mesh = Mesh::parse("a=2"), to({{"x", 2}}, {1, 0});
  run(2, [&](Runtime&) {
    DistTensor x = numbers({5, 4}, mesh, "S0").set_requires_grad();
    const DistTensor y = x.redistribute_async("S1");
    const DistTensor z = x.redistribute_async(to, "R").redistribute(mesh, "R");
    const DistTensor g = grad(sum(y * y * z), {x})[0];
    EXPECT_EQ(g.spec(), x.spec());
    for (int64_t i = 0; i < x.local().numel(); ++i)
      EXPECT_NEAR(g.local().at(i), 3 * x.local().at(i) * x.local().at(i),
                  1e-12);
  });
}

// No operator makes `whole` of x, but the cotangent of y becomes that of x.
TEST(RedistributeGrad, PassesAsItComes) {
  const Mesh mesh = Mesh::parse("x=2");
  run(2, [&](Runtime&) {
    DistTensor x = randn({4}, mesh, "S0", DType::kF64, {1, 1});
    x.set_requires_grad();
    const DistTensor whole = DistTensor::wrap(
        x.detach().full(), Spec::replicated(mesh, {4}, DType::kF64));
    const DistTensor y = passes_as_it_comes(x, whole);
    EXPECT_EQ(grad(sum(y * y), {x})[0].to_string(), (x * 2.0).to_string());
    const NoGrad no_grad;
    EXPECT_FALSE(records(x));
    EXPECT_FALSE(passes_as_it_comes(x, whole.detach()).requires_grad());
  });
}

}  // namespace
}  // namespace dtensor
