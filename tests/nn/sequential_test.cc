// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/sequential.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "dtensor/dtensor.h"
#include "tests/nn/on_mesh.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

using testing::error_of;

Scope on(const Mesh& mesh) {
  Scope at;
  at.mesh = mesh;
  return at;
}

TEST(Sequential, IsItsSteps) {
  on_mesh<int>("tp=3", [](const Mesh& m) {
    const Scope at{.mesh = m,
                   .plan = std::make_shared<ParallelPlan>(ParallelPlan{
                       {"0.*", {{"tp", Shard(0)}}}, {"2.weight", "S1"}})};
    const Sequential net(at, layer<Linear>(4, 8), gelu,
                         layer<Linear>(8, 2, false));
    std::vector<std::string> names;
    for (const NamedParameter& p : net.named_parameters())
      names.push_back(p.name + " " + p.tensor.spec()->to_string());
    EXPECT_EQ(names, (std::vector<std::string>{"0.weight f32[8, 4](S0)",
                                               "0.bias f32[8](S0)",
                                               "2.weight f32[2, 8](S1)"}));
    const DistTensor x = randn({5, 4}, m);
    const DistTensor want = linear(
        gelu(linear(x, net.parameter("0.weight"), net.parameter("0.bias"))),
        net.parameter("2.weight"));
    EXPECT_EQ(values(net.forward(x)), values(want));

    Sequential grown(at);
    grown.push_back(relu);
    EXPECT_EQ(grown.push_back<Linear>(4, 2)->path(), "1");
    EXPECT_EQ(grown.forward(x).shape(), (Shape{5, 2}));
    return 0;
  });
}

// A model with dropout inside a Sequential and a list of modules.
class Model : public Module {
 public:
  explicit Model(const Scope& at)
      : Module(at),
        net_(add<Sequential>("net", layer<Linear>(4, 4), layer<Dropout>(0.5))) {
    for (int i = 0; i < 2; ++i)
      list_.push_back(add<Linear>("list." + std::to_string(i), 4, 4));
  }
  DistTensor forward(const DistTensor& x) const {
    DistTensor y = net_(x);
    for (const Child<Linear>& each : list_) y = each(y);
    return y;
  }
  const Sequential& net() const { return *net_; }

 private:
  Child<Sequential> net_;
  std::vector<Child<Linear>> list_;  // ModuleList
};

TEST(Dropout, DropsInTrainingOnly) {
  on_mesh<int>("tp=2", [](const Mesh& m) {
    Dropout drop(on(m), 0.25);
    const DistTensor x = ones({40, 50}, m, "S0");
    EXPECT_TRUE(drop.training());
    const DistTensor y = drop.forward(x);
    EXPECT_TRUE(all((y == 0) | (y == 1 / 0.75f)).item<bool>());
    EXPECT_NEAR((y == 0).to(DType::kF32).mean().item(), 0.25, 0.05);
    drop.eval();
    EXPECT_TRUE(drop.forward(x).same_as(x));

    Model model(on(m));
    const DistTensor in = randn({3, 4}, m);
    EXPECT_NE(values(model.forward(in)), values(model.forward(in)));
    model.eval();
    EXPECT_FALSE(model.net().training());
    EXPECT_EQ(values(model.forward(in)), values(model.forward(in)));
    model.replace("net.1", [](const Scope& at, const Module&) {
      return std::make_unique<Dropout>(at, 0.9);
    });
    EXPECT_EQ(values(model.forward(in)), values(model.forward(in)));
    model.train();
    EXPECT_TRUE(model.net().training());
    return 0;
  });
}

TEST(Modules, AreListed) {
  on_mesh<int>("tp=1", [](const Mesh& m) {
    Model model(on(m));
    std::vector<std::string> paths, applied;
    for (const auto& [path, module] : model.named_modules()) {
      paths.push_back(path);
      EXPECT_EQ(path.empty() ? &model : &model.module(path), module);
    }
    EXPECT_EQ(paths, (std::vector<std::string>{"", "net", "net.0", "net.1",
                                               "list.0", "list.1"}));
    model.apply([&](Module& each) { applied.push_back(each.path()); });
    EXPECT_EQ(applied, (std::vector<std::string>{"net.0", "net.1", "net",
                                                 "list.0", "list.1", ""}));
    return 0;
  });
}

TEST(Modules, StateDictsLoadOnOtherLayouts) {
  on_mesh<int>("tp=2", [](const Mesh& m) {
    Model a(on(m)), b(Scope{.mesh = m,
                            .plan = std::make_shared<ParallelPlan>(
                                ParallelPlan{{"*weight", "S0"}}),
                            .seed = 5});
    EXPECT_EQ(a.state_dict()[0].name, "net.0.weight");
    EXPECT_NE(values(a.parameter("list.1.weight")),
              values(b.parameter("list.1.weight")));
    b.load_state_dict(a.state_dict());
    for (const NamedParameter& p : a.state_dict())
      EXPECT_EQ(values(p.tensor), values(b.parameter(p.name))) << p.name;
    auto missing = a.state_dict();
    missing.pop_back();
    EXPECT_NE(error_of([&] { b.load_state_dict(missing); }).find("list.1.bias"),
              std::string::npos);
    return 0;
  });
}

TEST(Modules, BecomeAnotherType) {
  for (const char* layout : {"R", "S0", "S1"})
    for (const int stage : {0, 1, 3})
      on_mesh<int>("dp=2,tp=2", [&](const Mesh& m) {
        const ParallelPlan plan(
            {{"*weight", std::string_view(fmt::format("R,{}", layout))}});
        Model model(
            Scope{.mesh = m,
                  .plan = std::make_shared<ParallelPlan>(zero(plan, stage))});
        model.eval();
        const DistTensor x = randn({3, 4}, m);
        const auto run = [&](DType t) {
          return mean(square(model.forward(x.to(t))));
        };
        const auto before = model.parameters();
        const std::vector<double> wide = values(before[0]);
        const double loss = run(DType::kF32).item();
        grad(run(DType::kF32), model.parameters());
        model.to(DType::kBF16);
        EXPECT_EQ(model.dtype(), DType::kBF16);
        EXPECT_EQ(model.net().dtype(), DType::kBF16);
        for (const NamedParameter& p : model.named_parameters()) {
          EXPECT_EQ(p.tensor.dtype(), DType::kBF16) << p.name;
          EXPECT_EQ(p.tensor.grad_spec()->dtype(), DType::kBF16) << p.name;
        }
        // Handles from before see the new type, with rounded values.
        EXPECT_EQ(before[0].dtype(), DType::kBF16);
        const std::vector<double> narrow = values(before[0]);
        for (size_t i = 0; i < wide.size(); ++i)
          EXPECT_NEAR(narrow[i], wide[i], std::abs(wide[i]) / 256);
        EXPECT_NEAR(run(DType::kBF16).item(), loss, 0.05 * (1 + loss));
        const auto g = grad(run(DType::kBF16), model.parameters());
        EXPECT_EQ(g[0].dtype(), DType::kBF16);
        AdamW optimizer(model.named_parameters());
        optimizer.step(g, {.lr = 0.1});
        EXPECT_NE(values(before[0]), narrow);
        EXPECT_EQ(optimizer.state_dict()[0].name, optimizer.state()[0].name);
        optimizer.load_state_dict(optimizer.state_dict());
        optimizer.zero_grad();
        EXPECT_EQ(error_of([&] { model.to(DType::kI32); }),
                  "[module] parameters cannot become i32; write a float type, "
                  "such as DType::kBF16");
        return 0;
      });
}

TEST(ForwardHooks, SeeAndReplace) {
  on_mesh<int>("tp=2", [](const Mesh& m) {
    Model model(on(m));
    model.eval();
    const DistTensor x = randn({3, 4}, m);
    const std::vector<double> before = values(model.forward(x));
    std::vector<std::string> seen;
    DistTensor input, output;
    std::vector<HookHandle> handles;
    for (const auto& [path, module] : model.named_modules())
      handles.push_back(module->register_forward_hook(
          [&](const Module& me, const DistTensor& in, const DistTensor& out) {
            seen.push_back(me.path());
            input = in, output = out;
          }));
    const DistTensor y = model.forward(x);
    EXPECT_EQ(values(y), before);
    // The model itself was not called by child(x).
    EXPECT_EQ(seen, (std::vector<std::string>{"net.0", "net.1", "net", "list.0",
                                              "list.1"}));
    EXPECT_TRUE(output.same_as(y));
    EXPECT_EQ(input.shape(), x.shape());
    for (HookHandle& handle : handles) handle.remove();
    HookHandle zero = model.module("list.0").register_forward_hook(
        [](const Module&, const DistTensor&, const DistTensor& out) {
          return out * 0;
        });
    EXPECT_EQ(values(model.forward(x)),
              values(linear(zeros({3, 4}, m), model.parameter("list.1.weight"),
                            model.parameter("list.1.bias"))));
    zero.remove();
    EXPECT_EQ(values(model.forward(x)), before);
    EXPECT_EQ(seen.size(), 5);
    return 0;
  });
}

class Two : public Module {
 public:
  explicit Two(const Scope& at) : Module(at) {}
  std::pair<DistTensor, DistTensor> forward(const DistTensor& x) const {
    return {x, x};
  }
};
class Around : public Module {
 public:
  explicit Around(const Scope& at) : Module(at), two_(add<Two>("two")) {}
  DistTensor forward(const DistTensor& x) const { return two_(x).first; }

 private:
  Child<Two> two_;
};

TEST(ForwardHooks, NeedATensor) {
  EXPECT_EQ(error_of([] {
              run(2, [](Runtime& rt) {
                Around model(on(rt.mesh()));
                const DistTensor x = ones({2}, rt.mesh());
                EXPECT_TRUE(model.forward(x).same_as(x));
                model.module("two").register_forward_hook([](auto&&...) {});
                model.forward(x);
              });
            }),
            "[module] two has a hook, but its forward() does not return one "
            "tensor; add the hook to a module whose forward() does");
}

// A forward() that moves from its argument does not take it from a hook.
struct Moves : Module {
  using Module::Module;
  DistTensor forward(DistTensor x) const { return x; }
};
struct Outer : Module {
  explicit Outer(const Scope& at) : Module(at), inner(add<Moves>("inner")) {}
  Child<Moves> inner;
};

TEST(ForwardHooks, SeeAnArgumentThatIsMovedFrom) {
  on_mesh<int>("tp=2", [](const Mesh& m) {
    Outer model(on(m));
    bool defined = false;
    model.inner->register_forward_hook(
        [&](const Module&, const DistTensor& in, const DistTensor&) {
          defined = in.defined();
        });
    model.inner(ones({2}, m));
    EXPECT_TRUE(defined);
    return 0;
  });
}

// A trainer evaluates without dropout, and trains with it again afterwards.
TEST(DropoutTest, TrainerEvaluatesInTheModeOfEval) {
  on_mesh<int>("dp=2", [](const Mesh& m) {
    Sequential net(Scope{.mesh = m}, layer<Linear>(4, 4), layer<Dropout>(0.5));
    Trainer trainer(net,
                    [&](const DistTensor& x, const DistTensor&) {
                      return mean(square(net.forward(x)));
                    },
                    {.steps = 1, .progress = false});
    const Batches ones = [](int64_t) {
      return Batch{Tensor::full({4, 4}, DType::kF32, 1),
                   Tensor::full({4}, DType::kF32, 1)};
    };
    EXPECT_EQ(trainer.evaluate(1, ones), trainer.evaluate(1, ones));
    EXPECT_TRUE(net.training());
    net.eval();
    trainer.evaluate(1, ones);
    EXPECT_FALSE(net.training());
    return 0;
  });
}

// States of the old type would be read as the new one.
TEST(Module, ToComesBeforeTheOptimizer) {
  on_mesh<int>("dp=2", [](const Mesh& m) {
    Sequential net(on(m), layer<Linear>(8, 8));
    AdamW opt(net.named_parameters());
    net.to(DType::kF64);
    const DistTensor x = ones({4, 8}, m, {}, DType::kF64);
    const auto grads = grad(sum(net.forward(x)), net.parameters());
    EXPECT_EQ(error_of([&] { opt.step(grads, {.lr = 0.1}); }),
              "[optimizer] 0.weight is f64[8, 8](R) now, but was f32 when the "
              "optimizer was made; call Module::to() before that, or make a "
              "new optimizer");
    return 0;
  });
}

// A graph of the old values says that they are gone.
TEST(Module, ToEndsGraphs) {
  on_mesh<int>("dp=2", [](const Mesh& m) {
    Sequential net(on(m), layer<Linear>(8, 8));
    const DistTensor x = ones({4, 8}, m).set_requires_grad();
    const DistTensor loss = sum(net.forward(x));
    net.to(DType::kBF16);
    EXPECT_NE(error_of([&] { grad(loss, {x}); }).find("was changed in place"),
              std::string::npos);
    return 0;
  });
}

}  // namespace
}  // namespace dtensor::nn
