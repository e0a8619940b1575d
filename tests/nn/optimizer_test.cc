// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "dtensor/autograd.h"
#include "dtensor/dist_tensor_impl.h"
#include "dtensor/nn/optimizers.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/placement/error.h"
#include "dtensor/runtime.h"
#include "tests/nn/on_mesh.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

using Values = std::vector<double>;

// A matrix with uneven parts and a vector, and gradients for some steps.
struct Problem {
  std::vector<DistTensor> parameters;
  std::vector<std::vector<DistTensor>> grads;  // by step
};

Problem problem(const Mesh& mesh, DType dtype) {
  const Placements rows = {{"tp", Shard(0)}};
  const auto draw = [&](Shape s, Placements p, uint64_t stream, DType t) {
    return randn(s, mesh, p, t, {3, stream});
  };
  Problem p;
  p.parameters = {draw({5, 3}, rows, 0, dtype), draw({4}, {}, 1, dtype)};
  for (DistTensor& x : p.parameters) x.as_parameter();
  for (uint64_t step = 0; step < 4; ++step)
    p.grads.push_back({draw({5, 3}, rows, 10 + step, dtype),
                       draw({4}, {}, 20 + step, dtype)});
  return p;
}

// One element through torch.optim.AdamW, as its documentation writes it.
double adamw(double p, const Values& grads, double lr, double scale,
             double decay) {
  double m = 0, v = 0;
  for (size_t t = 1; t <= grads.size(); ++t) {
    const double g = grads[t - 1] * scale;
    p -= lr * decay * p;
    m = 0.9 * m + 0.1 * g;
    v = 0.999 * v + 0.001 * g * g;
    const double n = static_cast<double>(t);
    const double mhat = m / (1 - std::pow(0.9, n));
    const double vhat = v / (1 - std::pow(0.999, n));
    p -= lr * mhat / (std::sqrt(vhat) + 1e-8);
  }
  return p;
}

double sgd(double p, const Values& grads, double lr, double scale, double decay,
           double momentum, bool nesterov) {
  double b = 0;
  for (double grad : grads) {
    const double g = grad * scale + decay * p;
    b = momentum * b + g;
    p -= lr * (nesterov ? g + momentum * b : b);
  }
  return p;
}

template <class Reference>
void check_updates(
    const std::string& mesh, DType dtype, double tolerance,
    const std::function<std::unique_ptr<Optimizer>(std::vector<DistTensor>)>&
        make,
    Reference&& reference) {
  on_mesh<int>(mesh, [&](const Mesh& m) {
    const Problem p = problem(m, dtype);
    std::vector<Values> before;
    for (const DistTensor& x : p.parameters) before.push_back(values(x));
    const auto optimizer = make(p.parameters);
    for (const auto& g : p.grads)
      optimizer->step(g, {.lr = 0.1, .grad_scale = 0.5});
    EXPECT_EQ(optimizer->steps(), 4);
    for (size_t i = 0; i < p.parameters.size(); ++i) {
      const Values after = values(p.parameters[i]);
      std::vector<Values> grads;
      for (const auto& g : p.grads) grads.push_back(values(g[i]));
      for (size_t j = 0; j < after.size(); ++j) {
        Values g;
        for (const Values& step : grads) g.push_back(step[j]);
        const double expected = reference(before[i][j], g, 0.01);
        EXPECT_NEAR(after[j], expected, tolerance * (1 + std::abs(expected)))
            << mesh << " " << name(dtype) << " parameter " << i << " at " << j;
      }
    }
    return 0;
  });
}

// Halves are rounded once, from their f32 master.
double tolerance(DType t) {
  if (t == DType::kF64) return 1e-14;
  return t == DType::kF32 ? 1e-6 : t == DType::kF16 ? 1. / 2048 : 1. / 256;
}

TEST(Optimizer, AdamWIsTorchs) {
  for (DType t : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16})
    for (const char* mesh : {"tp=1", "tp=2", "tp=3", "tp=7"})
      check_updates(
          mesh, t, tolerance(t),
          [](std::vector<DistTensor> p) {
            return std::make_unique<AdamW>(std::move(p));
          },
          [](double p, const Values& g, double decay) {
            return adamw(p, g, 0.1, 0.5, decay);
          });
}

TEST(Optimizer, SkippedUpdatesChangeNothing) {
  on_mesh<int>("tp=3", [](const Mesh& m) {
    const Problem p = problem(m, DType::kF16);
    AdamW adamw(p.parameters);
    adamw.step(p.grads[0], {});
    const auto all = [&] {
      std::vector<Values> now;
      for (const DistTensor& x : p.parameters) now.push_back(values(x));
      for (const OptimizerState& s : adamw.state())
        now.push_back(values(s.value));
      return now;
    };
    const std::vector<Values> before = all();
    adamw.step(p.grads[1], {.skip = true});
    EXPECT_EQ(all(), before);
    EXPECT_EQ(adamw.steps(), 1);
    adamw.step(p.grads[1], {});
    EXPECT_NE(all(), before);
    return 0;
  });
}

TEST(Optimizer, SgdIsTorchs) {
  for (DType t : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16})
    for (double momentum : {0.0, 0.9})
      for (bool nesterov : {false, true}) {
        if (nesterov && momentum == 0) continue;
        check_updates(
            "tp=2", t, tolerance(t),
            [&](std::vector<DistTensor> p) {
              return std::make_unique<SGD>(std::move(p),
                                           SGDOptions{.momentum = momentum,
                                                      .weight_decay = 0.01,
                                                      .nesterov = nesterov});
            },
            [&](double p, const Values& g, double decay) {
              return sgd(p, g, 0.1, 0.5, decay, momentum, nesterov);
            });
      }
}

TEST(Optimizer, SmallUpdatesAddUpInTheMasterCopy) {
  on_mesh<int>("tp=2", [](const Mesh& m) {
    // 1 - lr rounds to 1, but eight updates add up.
    for (const auto& [t, lr, want] : {std::tuple{DType::kBF16, 1e-3, 0.9921875},
                                      {DType::kF16, 2e-4, 0.99853515625}}) {
      DistTensor p = ones({8}, m, {{"tp", Shard(0)}}, t);
      p.as_parameter();
      SGD optimizer({p});
      for (int i = 0; i < 8; ++i)
        optimizer.step({ones({8}, m, {{"tp", Shard(0)}}, t)}, {.lr = lr});
      EXPECT_EQ(values(p), Values(8, want)) << name(t);
    }
    return 0;
  });
}

// More parameters than one launch takes, of all sizes and types. Some have
// gradients of f32, some are updated in parts that do not lie together, and one
// of those is large.
TEST(Optimizer, ManyParametersAtOnce) {
  on_mesh<int>("tp=2", [](const Mesh& m) {
    const DType types[] = {DType::kF32, DType::kBF16, DType::kF64, DType::kF16};
    std::vector<DistTensor> p;
    std::vector<NamedParameter> named;
    std::vector<std::vector<DistTensor>> grads(2);
    std::vector<Values> before;
    for (int64_t i = 0; i < 97; ++i) {
      const DType t = i == 50 ? DType::kF32 : types[i % 4];
      const Shape shape = i == 50      ? Shape{512, 4608}
                          : i % 3 == 0 ? Shape{i % 7 + 1, 2 * (i % 5 + 1)}
                                       : Shape{i * 37 % 67 + 1};
      const auto stream = static_cast<uint64_t>(i);
      p.push_back(randn(shape, m, {}, t, {1, stream}));
      p.back().as_parameter();
      if (shape.size() == 2)
        p.back().set_grad_layout({{"tp", Shard(1)}});
      else if (i % 2)
        p.back().set_grad_layout({{"tp", Shard(0)}});
      named.push_back({std::to_string(i), p.back()});
      before.push_back(p.back().full().to_doubles());
      for (size_t s = 0; s < 2; ++s) {
        const DType gt = i % 8 < 4 && is_half_float(t) ? DType::kF32 : t;
        grads[s].push_back(randn(shape, m, {}, gt, {2 + s, stream})
                               .redistribute(p.back().grad_spec()->layout()));
      }
    }
    AdamW optimizer(named, {.weight_decay = 0.1});
    for (const auto& g : grads)
      optimizer.step(g, {.lr = 0.1, .grad_scale = 0.5});
    for (size_t i = 0; i < p.size(); ++i) {
      const Values after = p[i].full().to_doubles();
      const Values g0 = grads[0][i].full().to_doubles(),
                   g1 = grads[1][i].full().to_doubles();
      double worst = 0;
      for (size_t j = 0; j < after.size(); ++j) {
        const double want = adamw(before[i][j], {g0[j], g1[j]}, 0.1, 0.5, 0.1);
        worst =
            std::max(worst, std::abs(after[j] - want) / (1 + std::abs(want)));
      }
      EXPECT_LE(worst, tolerance(p[i].dtype())) << i;
    }
    return 0;
  });
}

// Guards a fix: such parameters were never updated, because the update went to
// a copy of the part.
TEST(Optimizer, GradientsThatDoNotCutTheHeldPartsAreRefused) {
  on_mesh<int>("dp=2,tp=2", [](const Mesh& m) {
    const auto error = [&](const Placements& held, const Placements& grad) {
      DistTensor w = ones({4, 8}, m, held).as_parameter();
      w.set_grad_layout(grad);
      const std::vector<NamedParameter> named = {{"w", w}};
      return testing::error_of([&] { SGD sgd(named, {.momentum = 0.9}); });
    };
    EXPECT_EQ(error({{"tp", Shard(0)}}, {{"tp", Shard(1)}}),
              "[optimizer] parameter w is f32[4, 8](R,S0), but its gradient is "
              "laid out as f32[4, 8](R,S1), which does not cut one box out of "
              "each rank's part; call set_grad_layout() with the parameter's "
              "own layout, split further over other axes");
    EXPECT_NE(error({}, "R,S1(h=2 d=4:d)"), "no error");
    EXPECT_EQ(error({{"tp", Shard(0)}}, {{"tp", Shard(0)}, {"dp", Shard(0)}}),
              "no error");
    EXPECT_EQ(error({}, {{"dp", Shard(1)}}), "no error");
    return 0;
  });
}

TEST(Optimizer, GroupsHaveARateAndADecayOfTheirOwn) {
  on_mesh<int>("tp=2", [](const Mesh& m) {
    std::vector<DistTensor> p;
    for (int i = 0; i < 3; ++i) {
      p.push_back(ones({2}, m, {{"tp", Shard(0)}}, DType::kF64));
      p.back().as_parameter();
    }
    AdamW optimizer({{.parameters = {{"a", p[0]}}},
                     {.parameters = {{"b", p[1]}}, .weight_decay = 0.5},
                     {.parameters = {{"c", p[2]}}, .lr_scale = 3}},
                    {.weight_decay = 0.1});
    const DistTensor none = zeros({2}, m, {{"tp", Shard(0)}}, DType::kF64);
    optimizer.step({none, none, none}, {.lr = 0.1});
    EXPECT_NEAR(values(p[0])[0], 1 - 0.1 * 0.1, 1e-15);
    EXPECT_NEAR(values(p[1])[0], 1 - 0.1 * 0.5, 1e-15);
    EXPECT_NEAR(values(p[2])[0], 1 - 3 * 0.1 * 0.1, 1e-15);
    return 0;
  });
}

TEST(Optimizer, DecayOfMatricesAlone) {
  on_mesh<int>("tp=1", [](const Mesh& m) {
    DistTensor matrix = ones({2, 2}, m, {}, DType::kF64).as_parameter();
    DistTensor vector = ones({2}, m, {}, DType::kF64).as_parameter();
    SGD optimizer(decay_matrices({{"v", vector}, {"m", matrix}}),
                  {.weight_decay = 0.1});
    EXPECT_TRUE(optimizer.parameters()[0].same_as(matrix));
    optimizer.step(
        {zeros({2, 2}, m, {}, DType::kF64), zeros({2}, m, {}, DType::kF64)},
        {.lr = 1});
    EXPECT_EQ(values(matrix)[0], 0.9);
    EXPECT_EQ(values(vector)[0], 1);
    return 0;
  });
}

// Makes an optimizer that continues with the state of `before`, unless that is
// null, and makes the steps from `from` to 2.
std::unique_ptr<Optimizer> three_steps(const std::string& kind,
                                       const Problem& p, size_t from,
                                       const Optimizer* before) {
  std::vector<NamedParameter> named;
  for (const DistTensor& x : p.parameters)
    named.push_back({"layer." + std::to_string(named.size()), x});
  std::unique_ptr<Optimizer> o;
  if (kind == "adamw")
    o = std::make_unique<AdamW>(named);
  else
    o = std::make_unique<SGD>(named, SGDOptions{.momentum = 0.9});
  if (before) o->load_state(before->state());
  for (size_t i = from; i < 3; ++i) o->step(p.grads[i], {.lr = 0.1});
  return o;
}

TEST(Optimizer, StateResumesOnAnotherMesh) {
  for (const char* kind : {"adamw", "sgd"})
    for (DType t : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16})
      on_mesh<int>("tp=3", [&](const Mesh& m) {
        const Problem whole = problem(m, t);
        three_steps(kind, whole, 0, nullptr);
        // Two steps on this mesh, and the third one on another mesh.
        const Problem first = problem(m, t);
        std::vector<NamedParameter> named = {{"layer.0", first.parameters[0]},
                                             {"layer.1", first.parameters[1]}};
        std::unique_ptr<Optimizer> two;
        if (std::string(kind) == "adamw")
          two = std::make_unique<AdamW>(named);
        else
          two = std::make_unique<SGD>(named, SGDOptions{.momentum = 0.9});
        two->step(first.grads[0], {.lr = 0.1});
        two->step(first.grads[1], {.lr = 0.1});
        const Mesh other = Mesh::parse("tp=2 of ranks 2,0");
        Problem second = problem(other, t);
        for (size_t i = 0; i < 2; ++i)
          assign(second.parameters[i],
                 first.parameters[i].redistribute(other, "R"));
        const auto resumed = three_steps(kind, second, 2, two.get());
        for (size_t i = 0; i < 2; ++i)
          EXPECT_EQ(values(second.parameters[i].redistribute(m, "R")),
                    values(whole.parameters[i]))
              << kind << " " << name(t) << " " << i;
        const bool has_part =
            other.mesh_rank_of(RankContext::current().world_rank) >= 0;
        EXPECT_EQ(resumed->steps(), has_part ? 3 : 1);
        return 0;
      });
}

TEST(Optimizer, StateHasNames) {
  on_mesh<int>("tp=2", [](const Mesh& m) {
    DistTensor p = ones({4}, m, {{"tp", Shard(0)}}, DType::kBF16);
    p.as_parameter();
    AdamW optimizer(std::vector<NamedParameter>{{"h.weight", p}});
    std::string names;
    for (const OptimizerState& s : optimizer.state())
      names += s.name + " " + s.value.spec()->to_string() + "\n";
    EXPECT_EQ(names,
              "h.weight.exp_avg f32[4](S0)\nh.weight.exp_avg_sq f32[4](S0)\n"
              "h.weight.master f32[4](S0)\nh.weight.step i64[](R)\n");
    auto state = optimizer.state();
    state[0].name = "h.weight.exp_average";
    try {
      optimizer.load_state(state);
      ADD_FAILURE() << "an unknown name was taken";
    } catch (const Error& e) {
      const std::string text = e.what();
      EXPECT_NE(text.find("1 is missing (h.weight.exp_avg) and 1 is unknown "
                          "(h.weight.exp_average);"),
                std::string::npos)
          << text;
    }
    state[0] = {"h.weight.exp_avg", ones({5}, m)};
    EXPECT_THROW(optimizer.load_state(state), Error);
    state.pop_back();
    EXPECT_THROW(optimizer.load_state(state), Error);
    return 0;
  });
}

// A user's own optimizer calls assign().
TEST(Optimizer, AssignWritesAnUpdateInPlace) {
  on_mesh<int>("tp=2", [](const Mesh& m) {
    DistTensor w = ones({4}, m, {{"tp", Shard(0)}}, DType::kBF16);
    w.as_parameter();
    const DistTensor g = ones({4}, m);
    const uint64_t before = w.local().storage()->version();
    assign(w, w - g * 0.5);
    EXPECT_GT(w.local().storage()->version(), before);
    EXPECT_THROW(assign(w, ones({5}, m)), Error);
    EXPECT_EQ(values(w), Values(4, 0.5));
    EXPECT_TRUE(w.requires_grad());
    return 0;
  });
}

TEST(Optimizer, TheUpdateRaisesTheVersion) {
  on_mesh<int>("tp=1", [](const Mesh& m) {
    DistTensor p = ones({2}, m);
    p.as_parameter();
    SGD optimizer({p});
    const uint64_t before = p.local().storage()->version();
    optimizer.step({ones({2}, m)}, {});
    EXPECT_GT(p.local().storage()->version(), before);
    return 0;
  });
}

TEST(Optimizer, Errors) {
  on_mesh<int>("tp=2", [](const Mesh& m) {
    DistTensor p = ones({4}, m, {{"tp", Shard(0)}});
    p.as_parameter();
    SGD optimizer({p});
    EXPECT_THROW(optimizer.step({}, {}), Error);
    EXPECT_THROW(optimizer.step({ones({4}, m)}, {}), Error);
    EXPECT_THROW(SGD({p}, {.momentum = -1}), Error);
    EXPECT_THROW(AdamW({p}, {.beta2 = 1}), Error);
    EXPECT_THROW(AdamW({zeros({4}, m, {}, DType::kI64)}), Error);
    return 0;
  });
}

// Guards against these faults. An optimizer over a parameter that the rank has
// no part of, or that lies on another mesh, threw on these ranks, and so did
// the norm of such gradients. A bf16 parameter that was written to went back to
// the old master copy. AdamW did not decay vectors, as torch does. A part that
// is not contiguous was refused. A NaN norm left the gradients as they were. If
// one segment of a dimension is split and another is whole, the norm counted
// the whole one once per rank. A tensor that was listed twice was updated
// twice.

TEST(OptimizerIssue, ParametersOfTwoMeshes) {
  const Mesh a = Mesh::parse("a=2"), b = Mesh::parse("a=2 of ranks 2,3");
  run(5, [&](Runtime& rt) {
    DistTensor w1 = ones({4}, a, "S0").as_parameter();
    DistTensor w2 = ones({4}, b, "S0").as_parameter();
    SGD optimizer({w1, w2});
    const auto g = grad(sum(w1.redistribute(b, "S0") * w2), {w1, w2});
    const double norm = global_norm(g);
    EXPECT_NEAR(norm, rt.rank() < 4 ? std::sqrt(8.0) : 0, 1e-12);
    optimizer.step(g, {.lr = 0.25});
    for (const DistTensor& w : {w1, w2}) {
      EXPECT_EQ(w.here(), w.impl()->part().defined());
      EXPECT_EQ(w.here() ? w.local().at(0) : 0.75, 0.75);
    }
    EXPECT_EQ(optimizer.steps(), 1);
    EXPECT_EQ(optimizer.state().size(), 2u);  // two numbers of steps
  });
}

TEST(OptimizerIssue, ATensorIsListedOnce) {
  const Mesh m = Mesh::parse("a=1");
  run(1, [&](Runtime&) {
    const DistTensor w = ones({2}, m).as_parameter(), v = w;
    EXPECT_EQ(testing::error_of([&] {
                SGD({w, v});
              }),
              "[optimizer] parameters 0 and 1 are one tensor, f32[2](R), and "
              "would be updated twice; list it once");
    const std::vector<NamedParameter> named = {{"w", w}, {"v", v}};
    EXPECT_EQ(testing::error_of([&] { AdamW adam(named); }),
              "[optimizer] parameters w and v are one tensor, f32[2](R), and "
              "would be updated twice; list it once");
    const DistTensor equal = ones({2}, m).as_parameter();
    EXPECT_EQ(SGD({w, equal}).parameters().size(), 2u);
  });
}

TEST(OptimizerIssue, AWrittenParameterIsWhereTheNextUpdateStarts) {
  const Mesh m = Mesh::parse("a=1");
  run(1, [&](Runtime&) {
    DistTensor w = ones({2}, m, {}, DType::kBF16).as_parameter();
    SGD optimizer({w});
    assign(w, full({2}, 5, m, {}, DType::kBF16));
    for (int i = 0; i < 2; ++i)
      optimizer.step({zeros({2}, m, {}, DType::kBF16)}, {.lr = 0.1});
    EXPECT_EQ(w.local().at(0), 5);
  });
}

TEST(OptimizerIssue, VectorsDecayToo) {
  const Mesh m = Mesh::parse("a=1");
  run(1, [&](Runtime&) {
    DistTensor w = ones({2}, m, {}, DType::kF64).as_parameter();
    AdamW optimizer({w}, {.weight_decay = 0.1});
    optimizer.step({zeros({2}, m, {}, DType::kF64)}, {.lr = 0.1});
    EXPECT_DOUBLE_EQ(w.local().at(0), 0.99);
  });
}

TEST(OptimizerIssue, PartsThatAreNotContiguous) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    for (DType t : {DType::kF64, DType::kBF16, DType::kF16}) {
      const Tensor part = Tensor::full({2, 4}, t, 1).transpose(0, 1);
      ASSERT_FALSE(part.contiguous());
      DistTensor w = DistTensor::from_local(part, m, "S1", {4, 4});
      w.as_parameter();
      SGD optimizer({w});
      optimizer.step({ones({4, 4}, m, "S1", t)}, {.lr = 0.5});
      EXPECT_EQ(part.at(7), 0.5);
    }
  });
}

TEST(ClipIssue, NaNIsNoNormToGoOnWith) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(std::isnan(clip_scale(nan, 1)));
  EXPECT_EQ(clip_scale(nan, 0), 1);
  EXPECT_EQ(clip_scale(inf, 1), 0);
  EXPECT_THROW(clip_scale(nan, 1, true), Error);
  EXPECT_THROW(clip_scale(inf, 0, true), Error);
  EXPECT_EQ(clip_scale(0.5, 1, true), 1);
  // The norm is NaN on all ranks, whichever rank has the NaN.
  const Mesh m = Mesh::parse("a=3");
  run(3, [&](Runtime& rt) {
    const double mine = rt.rank() == 1 ? nan : 1;
    const DistTensor g = DistTensor::from_local(
        Tensor::full({1}, DType::kF64, mine), m, "S0", {3});
    EXPECT_TRUE(std::isnan(global_norm({g})));
  });
}

TEST(Optimizer, OptionsOutOfRange) {
  on_mesh<int>("tp=1", [](const Mesh& m) {
    const DistTensor p = ones({2}, m);
    const auto refused = [](const std::string& what, const auto& make) {
      EXPECT_EQ(testing::error_of(make).rfind("[optimizer] " + what, 0), 0u)
          << what;
    };
    const ParameterGroup all{.parameters = {{"p", p}}};
    ParameterGroup scaled = all, decayed = all;
    scaled.lr_scale = -1;
    decayed.weight_decay = -2;
    refused("lr_scale is -1; it must be at least 0", [&] { SGD({scaled}); });
    refused("weight decay is -2", [&] { SGD({decayed}); });
    refused("weight decay is -3", [&] { AdamW({all}, {.weight_decay = -3}); });
    refused("momentum is 1; it must be at least 0 and below 1",
            [&] { SGD({all}, {.momentum = 1}); });
    refused("beta1 is 1", [&] { AdamW({all}, {.beta1 = 1}); });
    refused("beta2 is -0.5", [&] { AdamW({all}, {.beta2 = -0.5}); });
    refused("eps is -1", [&] { AdamW({all}, {.eps = -1}); });
    return 0;
  });
}

TEST(ClipIssue, AWholeSegmentCountsOnce) {
  const std::pair<const char*, const char*> cases[] = {
      {"tp=2", "S0(q=4|kv=4:q)"},
      {"tp=3", "S0(q=6|kv=2:q)"},
      {"tp=2", "[(2 (2{tp}|2)),{}]"},
      {"dp=2,tp=2", "S1,S0(q=4|kv=4:q)"},
      {"dp=2,tp=2", "S0(q=4|kv=4:q),S0(:kv)"},
      {"dp=2,tp=2", "S0(q=4|kv=4:q),S0(:q)"}};
  for (const auto& [mesh, layout] : cases) {
    const Mesh m = Mesh::parse(mesh);
    run(m.num_ranks(), [&](Runtime&) {
      // Distinct values, so that a wrong element cannot stand for another.
      const DistTensor g = randn({8, 3}, m, layout, DType::kF64, {5, 5});
      const Tensor whole = g.full();
      double sum = 0;
      for (int64_t i = 0; i < whole.numel(); ++i)
        sum += whole.at(i) * whole.at(i);
      EXPECT_NEAR(global_norm({g}), std::sqrt(sum), 1e-12)
          << mesh << " " << layout;
    });
  }
}

}  // namespace
}  // namespace dtensor::nn
