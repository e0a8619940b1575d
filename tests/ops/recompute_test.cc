// SPDX-License-Identifier: Apache-2.0
// checkpoint(): the same values and gradients from less memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>

#include "dtensor/allocator.h"
#include "dtensor/comm_event.h"
#include "dtensor/dist_tensor_impl.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "dtensor/scoped.h"
#include "dtensor/scopes.h"
#include "tests/array.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;
using testing::values;
using Tensors = std::vector<DistTensor>;
using Values = std::vector<double>;

constexpr DType kF64 = DType::kF64;

std::vector<Values> values(const Tensors& list) {
  std::vector<Values> out;
  for (const DistTensor& x : list) out.push_back(values(x));
  return out;
}

// A tensor that requires a gradient, with the same values on every mesh.
DistTensor leaf(const Shape& shape, const Mesh& m, const Placements& layout,
                uint64_t stream) {
  return randn(shape, m, layout, kF64, {7, stream}).set_requires_grad();
}

// Counts how often each operator has run on this rank since construction: in
// any phase ("exp"), and in each phase ("recompute exp").
class Calls {
 public:
  int operator[](const std::string& op) { return count_[op]; }

 private:
  std::map<std::string, int> count_;
  OnOp observe_{RankContext::current(), [this](const OpRan& op) {
                  const std::string name(op.op);
                  ++count_[name];
                  ++count_[RankContext::current().phase + " " + name];
                }};
};

void expect_near(const std::vector<Values>& got,
                 const std::vector<Values>& expected, double off) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].size(), expected[i].size());
    double largest = 0;
    for (double v : expected[i]) largest = std::max(largest, std::abs(v));
    for (size_t k = 0; k < got[i].size(); ++k)
      EXPECT_NEAR(got[i][k], expected[i][k], off * largest) << i;
  }
}

// f(inputs), plain or inside checkpoint().
Tensors called(bool recompute, const Recomputed& f, const Tensors& inputs,
               const RecomputeOptions& o = {}) {
  return recompute ? checkpoint(f, inputs, o) : f(inputs);
}

struct Layouts {
  const char *mesh, *x, *up, *down;
};
class Recompute : public ::testing::TestWithParam<Layouts> {};
INSTANTIATE_TEST_SUITE_P(Meshes, Recompute,
                         ::testing::Values(Layouts{"a=1", "R", "R", "R"},
                                           Layouts{"dp=2,tp=2", "S0,R", "R,S1",
                                                   "R,S0"},
                                           Layouts{"tp=3", "R", "S1", "S0"},
                                           Layouts{"tp=3", "P", "S1", "R"}));

// An MLP with dropout; `side` comes through the closure and is no leaf.
struct Mlp {
  explicit Mlp(const Layouts& l)
      : m(Mesh::parse(l.mesh)),
        x(leaf({6, 8}, m, l.x, 1)),
        up(leaf({8, 10}, m, l.up, 2)),
        down(leaf({10, 8}, m, l.down, 3)),
        scale(leaf({8}, m, {}, 4)) {}
  Recomputed fn() const {
    const DistTensor side = scale * 2.0;
    return [side, up = up, down = down](const Tensors& in) {
      const DistTensor h = gelu(matmul(in[0], up));
      return Tensors{in[0] + dropout(matmul(h, down), 0.3) * side};
    };
  }
  Tensors leaves() const { return {x, up, down, scale}; }

  Mesh m;
  DistTensor x, up, down, scale;
};

TEST_P(Recompute, ValuesAndGradientsAreEqualBitForBit) {
  run(Mesh::parse(GetParam().mesh).num_ranks(), [&](Runtime&) {
    std::vector<std::vector<Values>> found;
    std::vector<RandomState> states;
    for (bool recompute : {false, true}) {
      manual_seed(5);
      const Mlp mlp(GetParam());
      const Recomputed f = mlp.fn();
      const DistTensor y =
          called(recompute, f, called(recompute, f, {mlp.x}))[0];
      states.push_back(random_state());
      Tensors all = grad(sum(y * y), mlp.leaves(), {.release_graph = true});
      states.push_back(random_state());
      all.push_back(y);
      found.push_back(values(all));
    }
    EXPECT_EQ(found[1], found[0]);
    EXPECT_EQ(states[2], states[0]);  // after the forward pass
    EXPECT_EQ(states[3], states[2]);  // and after the backward pass
    for (size_t i = 0; i < found[0].size(); ++i)
      EXPECT_NE(found[0][i], Values(found[0][i].size())) << i;
  });
}

TEST_P(Recompute, SecondDerivatives) {
  run(Mesh::parse(GetParam().mesh).num_ranks(), [&](Runtime&) {
    std::vector<std::vector<Values>> found;
    for (bool recompute : {false, true}) {
      manual_seed(5);
      const Mlp mlp(GetParam());
      const Recomputed f = mlp.fn();
      // A checkpoint in a checkpoint, and one after it.
      const Recomputed both = [=](const Tensors& in) {
        return called(recompute, f, {tanh(in[0])});
      };
      const DistTensor y =
          called(recompute, f, called(recompute, both, {mlp.x}))[0];
      const Tensors first =
          grad(sum(y * y), mlp.leaves(), {.create_graph = true});
      DistTensor s = sum(square(first[0]));
      for (size_t i = 1; i < first.size(); ++i) s = s + sum(square(first[i]));
      found.push_back(values(grad(s, mlp.leaves())));
    }
    expect_near(found[1], found[0], 1e-12);
    for (size_t i = 0; i < found[0].size(); ++i)
      EXPECT_NE(found[0][i], Values(found[0][i].size())) << i;
  });
}

// Inner operators run once for the outer's first run, once for the inner's
// first run in the outer's second, and once for the inner's second.
TEST(Checkpoint, Nested) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const DistTensor x = leaf({6}, m, "S0", 1), w = leaf({6}, m, "S0", 2);
    const auto inner = [w](const DistTensor& h) { return exp(h * w); };
    const auto outer = [=](const DistTensor& h) {
      return checkpoint(inner, tanh(h)) * w;
    };
    const Tensors expected = grad(sum(exp(tanh(x) * w) * w), {x, w});
    Calls calls;
    const DistTensor y = sum(checkpoint(outer, x));
    EXPECT_EQ(calls["exp"], 1);
    const Tensors g = grad(y, {x, w});
    EXPECT_EQ(calls["exp"], 3);
    EXPECT_EQ(calls["tanh"], 2);
    EXPECT_EQ(values(g), values(expected));
  });
}

// Under NoGrad, or if no tensor requires a gradient, the function runs once and
// the results require no gradient.
TEST(Checkpoint, WithoutGradients) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const DistTensor x = leaf({6}, m, "S0", 1);
    const auto f = [](const DistTensor& h) { return exp(h); };
    {
      const NoGrad no_grad;
      EXPECT_FALSE(checkpoint(f, x).requires_grad());
    }
    EXPECT_FALSE(checkpoint(f, x.detach()).requires_grad());
    EXPECT_TRUE(checkpoint(f, x).requires_grad());
    // The function returns a gradient that is not recorded.
    const DistTensor square = sum(x * x);
    EXPECT_FALSE(
        checkpoint(
            [&](const Tensors&) { return Tensors{exp(grad(square, {x})[0])}; },
            {x})[0]
            .requires_grad());
    // A scope inside the function records nothing.
    const DistTensor y = checkpoint(
        [&](const DistTensor& h) {
          const NoGrad no_grad;
          return exp(h);
        },
        x);
    EXPECT_FALSE(y.requires_grad());
  });
}

// Results that are inputs, constants or integers; an input twice, one that is
// not used, and results that nobody uses.
TEST(Checkpoint, InputsAndResultsOfAllSorts) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const DistTensor x = leaf({4}, m, "S0", 1), w = leaf({4}, m, "S0", 2),
                     unused = leaf({4}, m, "S0", 3);
    const DistTensor constant = ones({4}, m, "S0", kF64);
    const DistTensor ids = arange(4, m, "S0");
    const Tensors in{x, x, constant, ids, unused};
    const Recomputed f = [w](const Tensors& v) {
      const DistTensor y = v[0] * v[1] * w;
      return Tensors{y, v[0], v[2], v[3], v[3] + v[3], exp(w) * v[0], w, y};
    };
    const Tensors out = checkpoint(f, in), plain = f(in);
    ASSERT_EQ(out.size(), plain.size());
    EXPECT_TRUE(out[1].same_as(x));
    EXPECT_TRUE(out[2].same_as(constant));
    EXPECT_FALSE(constant.requires_grad());
    EXPECT_TRUE(out[3].same_as(ids));
    EXPECT_FALSE(out[4].requires_grad());
    EXPECT_TRUE(out[6].same_as(w));
    EXPECT_EQ(values(out), values(plain));
    // out[5] has no cotangent.
    const auto loss = [](const Tensors& r) {
      return sum(r[0] * r[1] * r[2] + r[6] * r[7]);
    };
    // With a checkpoint, a gradient's summands are added in another order.
    expect_near(values(grad(loss(out), {x, w, unused})),
                values(grad(loss(plain), {x, w, unused})), 1e-14);
    EXPECT_EQ(values(grad(sum(out[5]), {w})), values(grad(sum(plain[5]), {w})));
    // If only w's gradient is asked for, x's is not computed.
    Calls calls;
    grad(sum(out[5]), {w});
    const int mine = calls["mul"];
    grad(sum(out[5]), {w, x});
    EXPECT_EQ(calls["mul"] - mine, mine + 1);
  });
}

// The closure's tensor is taken as independent of the input that it is made of.
TEST(Checkpoint, CapturedAndMadeOfAnInput) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const DistTensor x = leaf({4}, m, "S0", 1);
    const DistTensor h = exp(x);
    const auto f = [h](const DistTensor& v) { return v * h; };
    EXPECT_EQ(values(grad(sum(checkpoint(f, x)), {x, h})),
              values(grad(sum(f(x)), {x, h})));
  });
}

// Tensors that want a gradient but are made inside, by hand or as the recorded
// gradient of something else, are made again.
TEST(Checkpoint, MadeInside) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const DistTensor x = leaf({4}, m, "S0", 1), w = leaf({4}, m, "S0", 2);
    const DistTensor cube = sum(w * w * w);
    for (bool create_graph : {false, true}) {
      const Recomputed f = [&](const Tensors& v) {
        const DistTensor own = leaf({4}, m, "S0", 3);
        const DistTensor slope =
            grad(cube, {w}, {.create_graph = create_graph})[0];
        return Tensors{v[0] * own * slope};
      };
      const auto gradients = [&](bool recompute) {
        return values(grad(sum(exp(called(recompute, f, {x})[0])), {x, w}));
      };
      expect_near(gradients(true), gradients(false), 1e-14);
      EXPECT_EQ(gradients(true)[1] == Values(4), !create_graph);
    }
  });
}

TEST(Checkpoint, KindOfMemory) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    RankContext& ctx = RankContext::current();
    std::vector<MemoryKind> kinds;
    const auto f = [&](const DistTensor& v) {
      kinds.push_back(ctx.memory_kind);
      return exp(v);
    };
    DistTensor y;
    {
      const Scoped<MemoryKind> kind(ctx.memory_kind, MemoryKind::kState);
      y = sum(checkpoint(f, leaf({4}, m, "S0", 1)));
    }
    DistTensor x = leaf({4}, m, "S0", 1);
    grad(y + sum(x), {x});
    EXPECT_EQ(kinds.size(), 1u);  // x is no input of f
    y = sum(checkpoint(f, x));
    {
      const Scoped<MemoryKind> kind(ctx.memory_kind, MemoryKind::kGradients);
      grad(y, {x});
    }
    EXPECT_EQ(kinds, (std::vector{MemoryKind::kState, MemoryKind::kActivations,
                                  MemoryKind::kActivations}));
  });
}

TEST(Checkpoint, PathsOrdinalsAndPhases) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    RankContext& ctx = RankContext::current();
    const DistTensor x = leaf({4, 4}, m, "S0", 1), w = leaf({4, 4}, m, "S0", 2);
    std::vector<std::string> seen;
    const OnOp observe(ctx, [&](const OpRan& op) {
      if (ctx.phase != "backward")
        seen.push_back(
            fmt::format("{} {}.{} {}", ctx.phase, ctx.path, op.ordinal, op.op));
    });
    ctx.record = true;
    DistTensor y;
    {
      const std::string path = "model";
      const PathScope model(path);
      y = exp(x);
      y = checkpoint(
          [w](const DistTensor& v) {
            const DistTensor h = matmul(v, w);
            const PathScope inside("model.act");
            return tanh(h);
          },
          y);
    }
    y = sum(y);
    const size_t forward = ctx.events.size();
    grad(y, {x, w});
    EXPECT_EQ(seen,
              (std::vector<std::string>{
                  "forward model.0 exp", "forward model.1 matmul",
                  "forward model.act.0 tanh", "forward .0 sum",
                  "recompute model.1 matmul", "recompute model.act.0 tanh"}));
    EXPECT_EQ(forward, 1u);  // w is gathered
    ASSERT_GT(ctx.events.size(), forward);
    EXPECT_EQ(ctx.events[1].phase, "recompute");
    EXPECT_EQ(ctx.events[1].op, "matmul");
    EXPECT_EQ(ctx.events[1].predicted, ctx.events[0].predicted);
    EXPECT_EQ(ctx.events[2].phase, "backward");
    EXPECT_EQ(ctx.phase, "forward");
    ctx.record = false;
  });
}

// Limits on communication also apply to the second run.
TEST(Checkpoint, LimitsOnWhatIsSent) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const DistTensor x = leaf({4, 4}, m, "S0", 1), w = leaf({4, 4}, m, "S0", 2);
    const auto f = [w](const DistTensor& v) { return matmul(v, w); };
    EXPECT_NE(error_of([&] {
                const ExplicitOnly only;
                checkpoint(f, x);
              }),
              "no error");
    const DistTensor y = sum(checkpoint(f, x));
    EXPECT_NE(error_of([&] {
                const ExplicitOnly only;
                grad(y, {x});
              }).find("[matmul] would have to communicate"),
              std::string::npos);
    int64_t spent = 0;
    {
      const CommBudget budget(1 << 20);
      grad(y, {w});
      spent = (1 << 20) - budget.left();
    }
    // w is gathered, its gradient is summed up where it is.
    EXPECT_EQ(spent, 4 * 2 * 8 + 4 * 2 * 8);
  });
}

// Inputs keep no copies that the function's operators made when they moved
// them.
TEST(Checkpoint, KeepsNothingOfWhatItMoved) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const DistTensor x = leaf({64, 64}, m, "S0", 1),
                     w = leaf({64, 64}, m, "S0", 2);
    const auto f = [](const Tensors& v) {
      return Tensors{sum(matmul(v[0], v[1]))};
    };
    const auto bytes = [] {
      return RankContext::current()
          .allocator->stats()
          .of(MemoryKind::kActivations)
          .current_bytes;
    };
    const int64_t before = bytes();
    const DistTensor y = checkpoint(f, Tensors{x, w})[0];
    EXPECT_LT(bytes() - before, 1024);
    {
      const Tensors g = grad(y, {x, w});
      EXPECT_LT(bytes() - before, 1024);
    }
    // Without a checkpoint w's 64x64 elements stay.
    const DistTensor z = f({x, w})[0];
    EXPECT_GE(bytes() - before, 64 * 64 * 8);
  });
}

// Outputs that were kept are freed with the graph, though a result still names
// it.
TEST(Checkpoint, FreesWhatItKept) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const DistTensor x = leaf({64, 64}, m, "S0", 1);
    const auto bytes = [] {
      return RankContext::current()
          .allocator->stats()
          .of(MemoryKind::kActivations)
          .current_bytes;
    };
    const int64_t before = bytes(), part = 32 * 64 * 8;
    const DistTensor y = sum(
        checkpoint([](const DistTensor& v) { return sum(exp(tanh(v))); }, x,
                   {[](const CheckpointedCall& c) { return c.op == "exp"; }}));
    EXPECT_GE(bytes() - before, part);
    EXPECT_LT(bytes() - before, 2 * part);
    grad(y, {x}, {.release_graph = true});
    EXPECT_LT(bytes() - before, 1024);
  });
}

// n equal steps of 3 tensors each: the peak is n inputs and one step's, not n
// steps'.
TEST(Checkpoint, PeakOfActivations) {
  const Mesh m = Mesh::parse("a=2");
  constexpr int64_t kSteps = 8, kSize = 64 * 1024, kBytes = kSize / 2 * 8;
  run(2, [&](Runtime&) {
    const DistTensor x = leaf({kSize}, m, "S0", 1);
    const auto step = [](const DistTensor& v) {
      return sin(tanh(exp(tanh(v))));
    };
    Allocator& a = *RankContext::current().allocator;
    const auto peak = [&](bool recompute) {
      a.reset_peak();
      const int64_t before =
          a.stats().of(MemoryKind::kActivations).current_bytes;
      DistTensor y = x;
      for (int64_t i = 0; i < kSteps; ++i)
        y = recompute ? checkpoint(step, y) : step(y);
      y = sum(y);
      const int64_t held =
          a.stats().of(MemoryKind::kActivations).current_bytes - before;
      const Values g = values(grad(y, {x}, {.release_graph = true})[0]);
      const int64_t most =
          a.stats().of(MemoryKind::kActivations).peak_bytes - before;
      return std::make_tuple(double(held) / kBytes, double(most) / kBytes, g);
    };
    const auto [held, most, g] = peak(false);
    const auto [held_less, most_less, same] = peak(true);
    EXPECT_EQ(g, same);
    // x existed before, and no step needs the last result.
    EXPECT_NEAR(held, 4 * kSteps - 1, 0.1);
    EXPECT_NEAR(held_less, kSteps - 1, 0.1);
    EXPECT_GT(most, 4 * kSteps);
    // The inputs, four of one step, and cotangents: coming in and going on.
    EXPECT_LE(most_less, kSteps + 4 + 3);
  });
}

// The backward pass frees the tensors of a function's graph one by one, as
// gradients take their place.
TEST(Checkpoint, PeakOfGradients) {
  const Mesh m = Mesh::parse("a=2");
  constexpr int64_t kSize = 64 * 1024, kBytes = kSize / 2 * 8;
  run(2, [&](Runtime&) {
    const DistTensor x = leaf({kSize}, m, "S0", 1);
    Tensors w;
    for (uint64_t i = 0; i < 6; ++i) w.push_back(leaf({kSize}, m, "S0", 2 + i));
    const auto f = [w](DistTensor v) {
      for (const DistTensor& p : w) v = v * p;
      return v;
    };
    Allocator& a = *RankContext::current().allocator;
    const int64_t before = a.stats().of(MemoryKind::kActivations).current_bytes;
    const DistTensor y = sum(checkpoint(f, x));
    a.reset_peak();
    const Tensors g = grad(y, w, {.release_graph = true});
    // At the peak: five products and the result, of which a gradient replaces
    // each that is freed; and, for the result and the current product, the
    // incoming and the outgoing cotangent. If all products stayed until the
    // end, there would be four more.
    EXPECT_LE(a.stats().of(MemoryKind::kActivations).peak_bytes - before,
              (6 + 4) * kBytes + 1024);
  });
}

TEST(Checkpoint, ReleasesWhatItKept) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const DistTensor x = leaf({4}, m, "S0", 1);
    DistTensor h = exp(x);
    const auto token = std::make_shared<int>(1);
    const DistTensor y = sum(
        checkpoint([h, token](const DistTensor& v) { return v * h; }, tanh(x)));
    const std::weak_ptr<DistTensor::Impl> watched = h.impl();
    grad(y, {x});
    EXPECT_EQ(token.use_count(), 2);
    grad(y, {x}, {.release_graph = true});
    EXPECT_EQ(token.use_count(), 1);
    h = {};
    EXPECT_TRUE(watched.expired());
    EXPECT_NE(error_of([&] { grad(y, {x}); }).find("release_graph"),
              std::string::npos);
  });
}

TEST(Checkpoint, AFunctionThatThrows) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    RankContext& ctx = RankContext::current();
    const DistTensor x = leaf({4}, m, "S0", 1);
    auto now = std::make_shared<bool>(true);
    const auto f = [now](const DistTensor& v) {
      const DistTensor y = dropout(v, 0.5);
      if (*now) throw std::runtime_error("no more");
      return y;
    };
    EXPECT_THROW(checkpoint(f, x), std::runtime_error);
    EXPECT_TRUE(ctx.grad_enabled);
    EXPECT_EQ(ctx.captures, nullptr);
    *now = false;
    const DistTensor y = sum(checkpoint(f, x));
    *now = true;
    const RandomState state = random_state();
    EXPECT_THROW(grad(y, {x}), std::runtime_error);
    EXPECT_EQ(random_state(), state);
    EXPECT_TRUE(ctx.grad_enabled);
    EXPECT_EQ(ctx.captures, nullptr);
    EXPECT_EQ(ctx.phase, "forward");
    *now = false;
    EXPECT_EQ(values(grad(y, {x})[0]).size(), 4u);
  });
}

// A long chain of checkpoints does not exhaust the stack.
TEST(Checkpoint, ManyInARow) {
  const Mesh m = Mesh::parse("a=1");
  run(1, [&](Runtime&) {
    const DistTensor x = leaf({1}, m, {}, 1);
    DistTensor y = x;
    for (int i = 0; i < 150000; ++i)
      y = checkpoint([](const DistTensor& v) { return neg(v); }, y);
    EXPECT_EQ(values(grad(y, {x}, {.cotangent = ones({1}, m, {}, kF64)})[0]),
              Values{1});
  });
}

TEST(Checkpoint, ChangedInPlaceSince) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const DistTensor x = leaf({4}, m, "S0", 1), w = leaf({4}, m, "S0", 2);
    DistTensor constant = ones({4}, m, "S0", kF64),
               running = ones({4}, m, "S0", kF64),
               unrelated = ones({4}, m, "S0", kF64);
    const auto changed = [&](DistTensor t, auto f) {
      const DistTensor y = sum(checkpoint(f, x));
      {
        const NoGrad no_grad;
        t.assign(Tensor::full(t.local().shape(), kF64, 3));
      }
      return error_of([&] { grad(y, {x}); });
    };
    const std::string expected =
        "[checkpoint] f64[4](S0) was changed in place after the function used "
        "it, and its old values are needed to run the function again; change a "
        "copy of it instead";
    const auto f = [=](const DistTensor& v) { return v * w * constant; };
    EXPECT_EQ(changed(x, f), expected);
    EXPECT_EQ(changed(w, f), expected);
    EXPECT_EQ(changed(constant, f), expected);
    EXPECT_EQ(changed(running, f), "no error");  // f does not use it
    // The function itself changes the tensor after it has used it.
    EXPECT_EQ(changed(unrelated,
                      [running](const DistTensor& v) mutable {
                        const DistTensor y = v * running;
                        running.assign((running * 2.0).local());
                        return y;
                      }),
              expected);
  });
}

// The second run makes results that the function creates anew.
TEST(Checkpoint, ResultsMayBeChangedInPlace) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const DistTensor x = leaf({4}, m, "S0", 1);
    const Recomputed f = [](const Tensors& v) {
      const DistTensor n = arange(4, v[0].mesh(), "S0");
      return Tensors{v[0] * cast(n, kF64), n};
    };
    Tensors out = checkpoint(f, {x});
    out[1].assign(Tensor::full(out[1].local().shape(), DType::kI64, 9));
    EXPECT_EQ(values(grad(sum(out[0]), {x})[0]), (Values{0, 1, 2, 3}));
  });
}

TEST(Checkpoint, AFunctionThatDoesSomethingElseTheSecondTime) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const DistTensor x = leaf({4}, m, "S0", 1), w = leaf({4}, m, "S0", 2),
                     used_before = leaf({4}, m, "S0", 3);
    exp(used_before);
    // The function calls first(v) in its first run, and second(v) in later
    // ones.
    const auto error = [&](auto first, auto second,
                           const RecomputeOptions& o = {}) {
      auto runs = std::make_shared<int>(0);
      const Recomputed f = [=](const Tensors& v) {
        return ++*runs == 1 ? first(v[0]) : second(v[0]);
      };
      const Tensors out = checkpoint(f, {x}, o);
      return error_of([&] { grad(sum(out[0]), {x}); });
    };
    const auto square_of = [](const DistTensor& v) { return Tensors{v * v}; };
    EXPECT_EQ(error(square_of, square_of), "no error");
    EXPECT_EQ(error(square_of,
                    [](const DistTensor& v) { return Tensors{sum(v * v)}; }),
              "[checkpoint] the function calls sum in its second run, where "
              "its first "
              "run had ended; run the same operators in both runs");
    EXPECT_EQ(
        error(square_of,
              [](const DistTensor& v) {
                return Tensors{(v * v).detach().redistribute("R")};
              }),
        "[checkpoint] result 0 of the function is f64[4](R) in its second run, "
        "but was f64[4](S0) in its first; compute the same in both runs");
    EXPECT_EQ(error(square_of,
                    [](const DistTensor& v) {
                      return Tensors{v * v, v};
                    }),
              "[checkpoint] the number of the function's results is 2 in its "
              "second run, but was 1 in its first; return the same in both "
              "runs");
    EXPECT_EQ(
        error([w](const DistTensor& v) { return Tensors{v * w}; }, square_of),
        "[checkpoint] the function used f64[4](S0) in its first run, but not "
        "in its second; use the same tensors in both runs, and make no tensors "
        "inside that require a gradient");
    EXPECT_EQ(
        error(square_of,
              [=](const DistTensor& v) { return Tensors{v * used_before}; }),
        "[checkpoint] the function uses f64[4](S0) in its second run, but not "
        "in its first; use the same tensors in both runs");
    const RecomputeOptions keep{[](const CheckpointedCall& c) {
      return c.op == "exp" || c.op == "tanh";
    }};
    const auto with_exp = [](const DistTensor& v) {
      return Tensors{exp(v) * v};
    };
    EXPECT_EQ(error(with_exp, with_exp, keep), "no error");
    EXPECT_EQ(
        error([](const DistTensor& v) { return Tensors{exp(tanh(v))}; },
              [](const DistTensor& v) { return Tensors{tanh(exp(v))}; }, keep),
        "[checkpoint] the function calls exp, giving f64[4](S0), in its second "
        "run, but tanh, giving f64[4](S0), in its first; run the same "
        "operators in both runs");
    EXPECT_EQ(
        error(
            with_exp, [](const DistTensor& v) { return Tensors{exp(exp(v))}; },
            keep),
        "[checkpoint] the function calls exp, giving f64[4](S0), in its second "
        "run, but mul, giving f64[4](S0), in its first; run the same operators "
        "in both runs");
    EXPECT_EQ(
        error([](const DistTensor& v) { return Tensors{exp(exp(v))}; },
              [](const DistTensor& v) { return Tensors{exp(v)}; }, keep),
        "[checkpoint] the number of the function's calls of operators is 1 in "
        "its second run, but was 2 in its first; run the same operators in "
        "both runs");
    // Calls whose outputs are not kept are compared, too.
    EXPECT_EQ(
        error([](const DistTensor& v) { return Tensors{v * 2.0}; },
              [](const DistTensor& v) { return Tensors{v * 3.0}; }),
        "[checkpoint] the function calls mul_scalar with other arguments, "
        "seeds or layouts in its second run than in its first; compute "
        "the same in both runs");
    // Both runs may write to a buffer, as long as they use it afterwards.
    const DistTensor buffer = zeros({4}, m, "S0", kF64);
    const auto through = [buffer](const DistTensor& v) {
      {
        const NoGrad no_grad;
        copy_into(buffer, v.detach(), 0, 0);
      }
      return Tensors{v * buffer};
    };
    EXPECT_EQ(error(through, through), "no error");
    // The policy is asked in the first run alone.
    int asked = 0;
    grad(sum(checkpoint(
             [](const DistTensor& v) { return exp(v); }, x,
             {[&asked](const CheckpointedCall&) { return ++asked == 1; }})),
         {x});
    EXPECT_EQ(asked, 1);
    EXPECT_EQ(error_of([&] {
                checkpoint([](const Tensors&) { return Tensors(1); }, {x});
              }),
              "[checkpoint] result 0 of the function is undefined; return "
              "defined tensors");
  });
}

// Kept outputs are not computed again, not even in nested checkpoints, and
// inputs that only these outputs needed are not moved again.
TEST(Checkpoint, KeptOutputs) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    RankContext& ctx = RankContext::current();
    const DistTensor x = leaf({4, 6}, m, "S1", 1), w = leaf({6, 4}, m, "S0", 2),
                     b = leaf({4, 4}, m, "R", 3);
    // A partial sum, which is reduced before 1 is added. The gradient does not
    // need it.
    const auto f = [=](const DistTensor& v) {
      return dropout(matmul(tanh(v), w) + 1.0, 0.5);
    };
    const auto outer = [=](const DistTensor& v) {
      return checkpoint(f, v) * b;
    };
    manual_seed(3);
    const Tensors expected = grad(sum(f(x) * b), {x, w, b});
    const RecomputeOptions save{
        [](const CheckpointedCall& c) { return c.op != "tanh"; }};
    // Without save, with it, and with it around another checkpoint.
    for (int how : {0, 1, 2}) {
      manual_seed(3);
      const DistTensor y =
          how == 2 ? checkpoint(outer, x, save)
                   : checkpoint(f, x, how ? save : RecomputeOptions()) * b;
      ctx.record = true;
      ctx.events.clear();
      Calls calls;
      const Tensors g = grad(sum(y), {x, w, b});
      int sent = 0;
      for (const CommEvent& e : ctx.events) sent += e.phase == "recompute";
      ctx.record = false;
      const int again = how == 0;
      EXPECT_EQ(sent, again);
      EXPECT_EQ(calls["recompute matmul"], again);
      EXPECT_EQ(calls["recompute add_scalar"], again);
      EXPECT_EQ(calls["recompute dropout"], again);
      EXPECT_EQ(calls["recompute tanh"], how == 2 ? 2 : 1);
      EXPECT_EQ(values(g), values(expected)) << how;
    }
    // One of two calls of an operator: the product with w, which the policy
    // knows by its second input.
    const DistTensor p = w.detach().as_parameter();
    Calls again;
    grad(sum(checkpoint(
             [p, b](const DistTensor& v) {
               return tanh(matmul(b, matmul(v, p)));
             },
             x, {[](const CheckpointedCall& c) {
               return c.op == "matmul" && c.inputs[1].keep() == Keep::kStay;
             }})),
         {x});
    EXPECT_EQ(again["recompute matmul"], 1);
    EXPECT_EQ(again["recompute tanh"], 1);
    // An input that the gradient needs is moved again: w, for x's gradient.
    ctx.record = true;
    ctx.events.clear();
    const DistTensor rows = leaf({4, 6}, m, "S0", 1);
    grad(sum(checkpoint([w](const DistTensor& v) { return matmul(v, w); }, rows,
                        save)),
         {rows});
    ctx.record = false;
    std::vector<std::string> phases;
    for (const CommEvent& e : ctx.events) phases.push_back(e.phase);
    EXPECT_EQ(phases, (std::vector<std::string>{"forward", "recompute"}));
    // A kept output that is also a result may not be written to.
    const DistTensor y =
        checkpoint([](const DistTensor& v) { return tanh(v); }, x,
                   {[](const CheckpointedCall&) { return true; }});
    const DistTensor loss = sum(y * 2.0);
    DistTensor handle = y;
    {
      const NoGrad no_grad;
      handle.assign(Tensor::full(y.local().shape(), kF64, 0));
    }
    EXPECT_EQ(error_of([&] { grad(loss, {x}); }),
              "[checkpoint] output 0 of tanh was changed in place after "
              "checkpoint() kept it for its second run; change a copy of it "
              "instead");
  });
}

// Parameters that rest in parts: gathered for the first run, freed, gathered
// for the second.
TEST(Checkpoint, GatheredParameters) {
  const Mesh m = Mesh::parse("dp=2");
  run(2, [&](Runtime&) {
    RankContext& ctx = RankContext::current();
    const auto steps = [&](bool rest, bool recompute,
                           const RecomputeOptions& o = {}) {
      DistTensor x = leaf({6, 8}, m, "S0", 1);
      Tensors w;
      for (uint64_t i = 0; i < 3; ++i) {
        w.push_back(randn({8, 8}, m, rest ? "S0" : "R", kF64, {7, 5 + i}));
        if (rest)
          w.back().gather_on_use("R");
        else
          w.back().as_parameter();
      }
      DistTensor y = x;
      for (const DistTensor& p : w) {
        const Recomputed f = [p](const Tensors& v) {
          return Tensors{tanh(matmul(v[0], p))};
        };
        y = called(recompute, f, {y}, o)[0];
      }
      ctx.events.clear();
      ctx.record = true;
      Tensors g =
          grad(sum(y * y), {x, w[0], w[1], w[2]}, {.release_graph = true});
      ctx.record = false;
      EXPECT_EQ(ctx.allocator->stats().of(MemoryKind::kGathered).current_bytes,
                0);
      g.push_back(y);
      return values(g);
    };
    const auto gathers = [&](std::string_view phase) {
      int n = 0;
      for (const CommEvent& e : ctx.events)
        n += e.phase == phase && e.kind == StepKind::kAllGather;
      return n;
    };
    const auto plain = steps(false, false), rest = steps(true, false);
    EXPECT_EQ(gathers("backward"), 2);  // the last one is still held
    const auto again = steps(true, true);
    EXPECT_EQ(gathers("recompute"), 3);
    EXPECT_EQ(gathers("backward"), 0);  // held since the second run
    EXPECT_EQ(again, rest);
    // A product that is kept needs its parameter for the gradient alone.
    const auto kept =
        steps(true, true,
              {[](const CheckpointedCall& c) { return c.op == "matmul"; }});
    EXPECT_EQ(gathers("recompute"), 0);
    EXPECT_EQ(gathers("backward"), 3);
    EXPECT_EQ(kept, rest);
    expect_near(again, plain, 1e-12);
  });
}

}  // namespace
}  // namespace dtensor
