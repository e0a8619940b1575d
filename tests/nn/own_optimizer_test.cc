// SPDX-License-Identifier: Apache-2.0
// Optimizers of a program's own, whose updates are written with operators.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dtensor/comm_event.h"
#include "dtensor/nn/optimizers.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "dtensor/scopes.h"
#include "tests/nn/on_mesh.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

using Values = std::vector<double>;
using dtensor::testing::error_of;
using Named = std::vector<NamedTensor>;

// The optimizer with these states and this update.
class Own : public Optimizer {
 public:
  using Update = std::function<DistTensor(ParameterUpdate&)>;
  Own(const ParameterGroups& p, States states, Update update,
      double weight_decay = 0)
      : Optimizer(p, weight_decay, std::move(states)),
        update_(std::move(update)) {}

 private:
  DistTensor update(ParameterUpdate& u) override { return update_(u); }
  Update update_;
};

Named moments(const DistTensor& p) {
  return {{"exp_avg", zeros_like(p)}, {"exp_avg_sq", zeros_like(p)}};
}

DistTensor adamw(ParameterUpdate& u) {
  DistTensor &m = u.state("exp_avg"), &v = u.state("exp_avg_sq");
  m = m * 0.9 + u.gradient * (1 - 0.9);
  v = v * 0.999 + u.gradient * u.gradient * (1 - 0.999);
  const auto t = static_cast<double>(u.step);
  const DistTensor mean = m / (1 - std::pow(0.9, t)),
                   square = v / (1 - std::pow(0.999, t));
  return u.parameter * (1 - u.lr * u.weight_decay) -
         mean / (sqrt(square) + 1e-8) * u.lr;
}

struct Layouts {
  const char *mesh, *held, *grad;
};

// Two parameters in groups of their own.
ParameterGroups groups(const Layouts& l, const Mesh& mesh, DType t) {
  std::vector<ParameterGroup> groups;
  for (uint64_t i = 0; i < 2; ++i) {
    DistTensor p = randn({5, 3}, mesh, l.held, t, {3, i}).as_parameter();
    p.set_grad_layout(l.grad);
    groups.push_back({{{"p" + std::to_string(i), p}}});
  }
  groups[0].lr_scale = 0.5;
  groups[1].weight_decay = 0.3;
  return groups;
}

TEST(OwnOptimizer, MakesTheUpdatesOfTheKernel) {
  const Layouts layouts[] = {
      {"tp=1", "R", "R"},   {"tp=2", "S0", "S0"},
      {"tp=3", "S1", "S1"}, {"dp=2", "R", "S0"},
      {"dp=7", "R", "S0"},  {"dp=2,tp=2", "R,S1", "S0,S1"}};
  for (const Layouts& l : layouts)
    for (DType t : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16})
      on_mesh<int>(l.mesh, [&](const Mesh& mesh) {
        AdamW kernel(groups(l, mesh, t), {.weight_decay = 0.1});
        Own own(groups(l, mesh, t), moments, adamw, 0.1);
        const auto all = [&](const Optimizer& o) {
          std::vector<OptimizerState> state = o.state();
          for (const DistTensor& p : o.parameters())
            state.push_back({std::to_string(state.size()), p});
          return state;
        };
        for (uint64_t step = 0; step < 4; ++step) {
          std::vector<DistTensor> grads;
          for (uint64_t i = 0; i < 2; ++i)
            grads.push_back(randn({5, 3}, mesh, l.grad,
                                  i ? t : kernel.state()[0].value.dtype(),
                                  {step, i}));
          const GradNorm norm = grad_norm(grads, 0.7, 0.5);
          // A program writes to a parameter.
          if (step == 2)
            for (Optimizer* o : std::vector<Optimizer*>{&kernel, &own})
              assign(o->parameters()[1], o->parameters()[1] * 0.5);
          for (Optimizer* o : std::vector<Optimizer*>{&kernel, &own}) {
            o->step(grads, {.lr = 0.1,
                            .grad_scale = 0.5,
                            .clip = norm.clip,
                            .skip = step == 1});
            EXPECT_EQ(o->steps(), step < 1 ? 1 : static_cast<int>(step));
          }
          const auto want = all(kernel), found = all(own);
          EXPECT_EQ(want.size(), found.size());
          for (size_t k = 0; k < want.size(); ++k) {
            EXPECT_EQ(want[k].name, found[k].name);
            EXPECT_EQ(want[k].value.spec(), found[k].value.spec());
            const Values a = values(want[k].value), b = values(found[k].value);
            const double near = want[k].value.dtype() == DType::kF64    ? 1e-14
                                : want[k].value.dtype() == DType::kBF16 ? 1e-2
                                : want[k].value.dtype() == DType::kF16  ? 1e-3
                                                                        : 1e-6;
            for (size_t j = 0; j < a.size(); ++j)
              EXPECT_NEAR(a[j], b[j], near * (1 + std::abs(a[j])))
                  << l.mesh << l.grad << name(t) << step << want[k].name;
          }
        }
        return 0;
      });
}

// The mean of the parameter, to which every rank contributes, is what changes.
DistTensor to_the_mean(ParameterUpdate& u) {
  DistTensor& seen = u.state("seen");
  seen = mean(u.parameter);
  return u.parameter - seen * u.lr;
}

TEST(OwnOptimizer, SkippedUpdatesSendTheSameAndChangeNothing) {
  on_mesh<int>("dp=2,tp=2", [](const Mesh& mesh) {
    int64_t of_a_step = 0;
    for (const bool skip : {false, true}) {
      Own own(
          groups({"", "R,S1", "S0,S1"}, mesh, DType::kBF16),
          [](const DistTensor& p) -> Named {
            return {{"seen", zeros_like(mean(p))}};
          },
          to_the_mean);
      const auto all = [&] {
        Values now;
        for (const OptimizerState& s : own.state())
          for (double v : values(s.value)) now.push_back(v);
        for (const DistTensor& p : own.parameters())
          for (double v : values(p)) now.push_back(v);
        return now;
      };
      const DistTensor g = zeros({5, 3}, mesh, "S0,S1");
      own.step({g, g}, {.lr = 0.1});
      const Values before = all();
      int64_t bytes = 0;
      {
        const CommRecord record;
        own.step({g, g}, {.lr = 0.1, .skip = skip});
        for (const CommEvent& e : record.events()) bytes += e.predicted;
      }
      EXPECT_GT(bytes, 0);
      EXPECT_EQ(bytes, skip ? of_a_step : bytes);
      of_a_step = bytes;
      EXPECT_EQ(all() == before, skip);
      EXPECT_EQ(own.steps(), skip ? 1 : 2);
    }
    return 0;
  });
}

// New values may be old ones, or views of them, in each other's place.
TEST(OwnOptimizer, NewValuesMayBeViewsOfOldOnes) {
  on_mesh<int>("tp=2", [](const Mesh& mesh) {
    DistTensor p = randn({3, 3}, mesh, "R", DType::kF64).as_parameter();
    const DistTensor g = randn({3, 3}, mesh, "R", DType::kF64);
    Own own(
        {p},
        [](const DistTensor& x) -> Named {
          return {{"before", x}, {"gradient", x}, {"same", x}};
        },
        [](ParameterUpdate& u) {
          const DistTensor older = u.state("before");
          u.state("before") = u.parameter;
          u.state("gradient") = u.gradient;
          return transpose(older);
        });
    const Values first = values(p),
                 turned = values(transpose(p) + zeros_like(p)),
                 gradient = values(g);
    own.step({g}, {});
    const auto state = [&](size_t i) { return values(own.state()[i].value); };
    EXPECT_EQ(values(p), turned);
    EXPECT_EQ(state(0), first);
    EXPECT_EQ(state(1), gradient);
    EXPECT_EQ(state(2), first);
    g.local().fill(0);  // the state is not the gradient's memory
    own.step({g}, {});
    EXPECT_EQ(values(p), turned);
    EXPECT_EQ(state(0), turned);
    own.step({g}, {});
    EXPECT_EQ(values(p), first);
    EXPECT_EQ(state(2), first);
    return 0;
  });
}

// States keep their layouts, whatever layouts their new values have.
TEST(OwnOptimizer, NewValuesMayHaveAnyLayoutAndType) {
  on_mesh<int>("tp=2", [](const Mesh& mesh) {
    DistTensor p = ones({4, 6}, mesh, "S0", DType::kBF16).as_parameter();
    Own own(
        {p},
        [](const DistTensor& x) -> Named {
          return {{"rows", sum(x, {0})},
                  {"n", ones({}, x.mesh(), {}, DType::kI64)}};
        },
        [](ParameterUpdate& u) {
          u.state("rows") = sum(u.gradient, {0});
          u.state("n") = u.state("n") + 1;
          return cast(u.parameter * 2, DType::kF64).redistribute("S1");
        });
    EXPECT_EQ(own.state()[0].value.spec()->to_string(), "f32[6](R)");
    EXPECT_EQ(values(own.state()[0].value), Values(6, 4));
    own.step({full({4, 6}, 3, mesh, "S0", DType::kBF16)}, {});
    EXPECT_EQ(own.state()[0].value.spec()->to_string(), "f32[6](R)");
    EXPECT_EQ(values(own.state()[0].value), Values(6, 12));
    EXPECT_EQ(own.state()[1].value.item<int64_t>(), 2);
    EXPECT_EQ(values(p), Values(24, 2));
    return 0;
  });
}

TEST(OwnOptimizer, RanksOutsideOfAMeshTakeNoPart) {
  const Mesh a = Mesh::parse("a=2"), b = Mesh::parse("a=2 of ranks 2,3");
  run(5, [&](Runtime&) {
    std::vector<DistTensor> all;
    for (const Mesh& mesh : {a, b})
      all.push_back(ones({3}, mesh, "S0", DType::kF64).as_parameter());
    Own own(
        all,
        [](const DistTensor& p) -> Named {
          return {{"seen", zeros_like(mean(p))}};
        },
        to_the_mean);
    own.step({all[0].detach(), all[1].detach()}, {.lr = 0.25});
    for (const DistTensor& p : all)
      EXPECT_EQ(p.here() ? values(p) : Values(3, 0.75), Values(3, 0.75));
  });
}

// Adds the mean of all gradients to each parameter that is here.
class Together : public Optimizer {
 public:
  explicit Together(const ParameterGroups& p)
      : Optimizer(p, 0, [](const DistTensor& x) -> Named {
          return {{"seen", zeros_like(x)}};
        }) {}
  std::vector<std::vector<size_t>> calls;
  bool forget = false;

 private:
  bool together() const override { return true; }
  std::vector<DistTensor> update_all(std::span<ParameterUpdate> all) override {
    calls.emplace_back();
    DistTensor sum = all[0].gradient;
    for (ParameterUpdate& u : all) {
      calls.back().push_back(u.index);
      u.state("seen") = u.gradient;
      if (u.index != all[0].index) sum = sum + u.gradient;
    }
    std::vector<DistTensor> values;
    for (const ParameterUpdate& u : all)
      values.push_back(u.parameter +
                       sum * (1 / static_cast<double>(all.size())));
    if (forget) values.pop_back();
    return values;
  }
};

TEST(OwnOptimizer, UpdatesMayBeMadeTogether) {
  const Mesh a = Mesh::parse("a=2"), b = Mesh::parse("a=2 of ranks 2,3");
  run(4, [&](Runtime& rt) {
    std::vector<DistTensor> all, grads;
    for (const Mesh& mesh : {a, b, b}) {
      all.push_back(ones({3}, mesh, "S0", DType::kF64).as_parameter());
      grads.push_back(
          full({3}, static_cast<double>(all.size()), mesh, "S0", DType::kF64));
    }
    Together own(all);
    own.step(grads, {.skip = true});
    own.step(grads, {});
    const std::vector<size_t> here =
        rt.rank() < 2 ? std::vector<size_t>{0} : std::vector<size_t>{1, 2};
    EXPECT_EQ(own.calls, (std::vector<std::vector<size_t>>{here, here}));
    for (const size_t i : here) {
      EXPECT_EQ(values(all[i]), Values(3, i == 0 ? 2 : 3.5));
      EXPECT_EQ(values(own.state()[2 * i].value),
                Values(3, static_cast<double>(i + 1)));
    }
    own.forget = true;
    EXPECT_EQ(error_of([&] { own.step(grads, {}); }),
              rt.rank() < 2
                  ? "[optimizer] update_all() returned 0 values for 1 "
                    "parameter; return one value for each"
                  : "[optimizer] update_all() returned 1 value for 2 "
                    "parameters; return one value for each");
  });
}

TEST(OwnOptimizer, Errors) {
  on_mesh<int>("tp=2", [](const Mesh& mesh) {
    const DistTensor p = ones({4, 2}, mesh, "S0").as_parameter();
    const DistTensor g = zeros({4, 2}, mesh, "S0");
    const auto same = [](ParameterUpdate& u) { return u.parameter; };
    const auto made = [&](const std::string& name, const DistTensor& value) {
      return error_of([&] {
        Own(
            {p},
            [&](const DistTensor&) -> Named {
              return {{name, value}};
            },
            same);
      });
    };
    for (const char* name : {"", "a.b", "master", "step"})
      EXPECT_EQ(made(name, g),
                "[optimizer] a state of 0 is called \"" + std::string(name) +
                    "\"; give each a name of its own, without dots, and other "
                    "than master and step");
    EXPECT_EQ(made("m", {}),
              "[optimizer] the state m of 0 is undefined; make a number tensor "
              "on the parameter's mesh tp=2");
    EXPECT_EQ(made("m", ones({1}, Mesh::parse("a=2"))),
              "[optimizer] the state m of 0 is f32[1](R) on a=2; make a number "
              "tensor on the parameter's mesh tp=2");
    const auto stepped = [&](const Own::Update& update,
                             const UpdateOptions& options = {}) {
      return error_of([&] { Own({p}, moments, update).step({g}, options); });
    };
    EXPECT_EQ(stepped([](ParameterUpdate& u) { return sum(u.parameter); }),
              "[optimizer] the update of 0 gives a value that is f32[](P) on "
              "tp=2, but it must be f32[4, 2](S0) on tp=2 in any layout");
    EXPECT_EQ(stepped([](ParameterUpdate& u) {
                u.state("exp_avg") = {};
                return u.parameter;
              }),
              "[optimizer] the update of 0 gives a state that is undefined, "
              "but it must be f32[4, 2](S0) on tp=2 in any layout");
    EXPECT_EQ(stepped([](ParameterUpdate& u) { return u.state("v"); }),
              "[optimizer] a parameter f32[4, 2](S0) has no state v; its "
              "states are: exp_avg, exp_avg_sq");
    EXPECT_EQ(stepped(same, {.rows = {zeros({1}, mesh, {}, DType::kI64)}}),
              "[optimizer] rows of 0 are given, but an update by operators is "
              "one of all rows; leave UpdateOptions::rows out, or use SGD or "
              "AdamW");
    EXPECT_EQ(values(p), Values(8, 1));
    EXPECT_EQ(stepped([](ParameterUpdate& u) {
                u.parameter -= u.gradient * u.lr;
                return u.parameter;
              }),
              "[optimizer] the update of 0 wrote to its arguments in place; "
              "return new tensors, as in p - g * lr, so that a step can be "
              "skipped");
    return 0;
  });
}

}  // namespace
}  // namespace dtensor::nn
