// SPDX-License-Identifier: Apache-2.0
// The path of a module tells a hook which module called an operator.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include "dtensor/nn/layers.h"
#include "dtensor/nn/models.h"
#include "dtensor/nn/module.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/runtime.h"
#include "dtensor/scopes.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

// PathScope does not copy the path, so it must not take a temporary string.
static_assert(std::is_constructible_v<PathScope, const char*>);
static_assert(std::is_constructible_v<PathScope, const std::string&>);
static_assert(!std::is_constructible_v<PathScope, std::string>);

class Mlp : public Module {
 public:
  Mlp(const Scope& at, int64_t hidden)
      : Module(at),
        up_(add<Linear>("up", hidden, 2 * hidden, false)),
        down_(add<Linear>("down", 2 * hidden, hidden, false)) {}
  DistTensor forward(const DistTensor& x) const { return down_(gelu(up_(x))); }

 private:
  Child<Linear> up_, down_;
};

class Block : public Module {
 public:
  Block(const Scope& at, int64_t hidden)
      : Module(at), mlp_(add<Mlp>("mlp", hidden)) {}
  DistTensor forward(const DistTensor& x) const {
    const DistTensor y = square(x);
    return y + mlp_(y);
  }
  // By -> instead of operator(), the call has the path of this module.
  DistTensor by_arrow(const DistTensor& x) const { return mlp_->forward(x); }

 private:
  Child<Mlp> mlp_;
};

class Net : public Module {
 public:
  explicit Net(const Scope& at) : Module(at) {
    for (const char* name : {"blocks.0", "blocks.1"})
      blocks_.push_back(add<Block>(name, 4));
  }
  DistTensor forward(DistTensor x) const {
    for (const Child<Block>& block : blocks_) x = block(x);
    return x * 2.0;
  }
  DistTensor by_arrow(const DistTensor& x) const {
    return blocks_[0].call(&Block::by_arrow, x);
  }

 private:
  std::vector<Child<Block>> blocks_;
};

// The operators that fn() calls, as "path: name ordinal".
template <class Fn>
std::vector<std::string> calls(Runtime& rt, Fn&& fn) {
  std::vector<std::string> list;
  const RankContext& context = rt.context();
  const OnOp observe(rt.context(), [&](const OpRan& op) {
    list.push_back(fmt::format("{}: {} {}", context.path, op.op, op.ordinal));
  });
  fn();
  return list;
}

DistTensor rows(const Mesh& mesh, const Shape& shape) {
  return randn(shape, mesh, "S0", DType::kF32, {1, 1});
}

TEST(ModulePath, EveryRankSeesIt) {
  // The last rank is not in the mesh.
  const Mesh mesh = Mesh::parse("dp=2");
  std::vector<std::vector<std::string>> seen(3);
  run(3, [&](Runtime& rt) {
    const Net net(Scope{.mesh = mesh, .plan = nullptr});
    const DistTensor x = rows(mesh, {4, 4});
    const PathScope around("net");
    seen[static_cast<size_t>(rt.rank())] =
        calls(rt, [&] { net.forward(x), net.by_arrow(x); });
  });
  std::vector<std::string> expected;
  for (const std::string block : {"blocks.0", "blocks.1"})
    for (const char* call : {": square 0", ".mlp.up: linear 0", ".mlp: gelu 0",
                             ".mlp.down: linear 0", ": add 1"})
      expected.push_back(block + call);
  expected.push_back("net: mul_scalar 0");
  for (const char* call :
       {".mlp.up: linear 0", ": gelu 0", ".mlp.down: linear 0"})
    expected.push_back(std::string("blocks.0") + call);
  for (const auto& one : seen) EXPECT_EQ(one, expected);
}

TEST(ModulePath, AnExceptionLeavesIt) {
  const Mesh mesh = Mesh::parse("dp=2");
  run(2, [&](Runtime& rt) {
    const Net net(Scope{.mesh = mesh, .plan = nullptr});
    const DistTensor x = rows(mesh, {4, 4}), wrong = rows(mesh, {4, 3});
    const auto list = calls(rt, [&] {
      const PathScope around("net");
      square(x);
      const std::string e =
          dtensor::testing::error_of([&] { net.forward(wrong); });
      EXPECT_NE(e.find("[linear]"), e.npos) << e;
      square(x);
    });
    EXPECT_EQ(list,
              (std::vector<std::string>{"net: square 0", "blocks.0: square 0",
                                        "net: square 1"}));
    EXPECT_EQ(rt.context().path, "");
  });
}

// In the library's models, an operator that uses a parameter has the
// parameter's path. A second step has the same paths and ordinals.
TEST(ModulePath, OfTheModels) {
  const Mesh mesh = Mesh::parse("dp=2,tp=2");
  for (const char* name : {"gpt", "llama"}) {
    const ModelConfig config{.name = name,
                             .layers = 2,
                             .hidden = 8,
                             .heads = 2,
                             .seq = 6,
                             .vocab = 10};
    run(4, [&](Runtime& rt) {
      const auto model = make_model(config, mesh);
      const auto parameters = model->named_parameters();
      const DistTensor tokens =
          randint(0, config.vocab, {2, 5}, mesh, {}, DType::kI64, {1, 1});
      const auto first = calls(rt, [&] { model->loss(tokens, tokens); });
      EXPECT_EQ(calls(rt, [&] { model->loss(tokens, tokens); }), first);
      auto unique = first;
      std::sort(unique.begin(), unique.end());
      EXPECT_EQ(std::unique(unique.begin(), unique.end()), unique.end());

      size_t uses = 0;
      const RankContext& context = rt.context();
      const OnOp observe(rt.context(), [&](const OpRan& op) {
        for (const NamedParameter& p : parameters)
          for (const DistTensor& in : op.given) {
            if (!in.same_as(p.tensor)) continue;
            ++uses;
            EXPECT_EQ(context.path, p.name.substr(0, p.name.rfind('.')))
                << op.op;
          }
      });
      model->logits(tokens);
      EXPECT_GE(uses, parameters.size());
    });
  }
}

}  // namespace
}  // namespace dtensor::nn
