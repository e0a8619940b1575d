// SPDX-License-Identifier: Apache-2.0
// save_on_host(): the same bits from less memory of a GPU.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/allocator.h"
#include "dtensor/comm_table.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/custom.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "dtensor/scopes.h"
#include "tests/dtensor/device/late_device.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;
using Tensors = std::vector<DistTensor>;
using Values = std::vector<std::vector<double>>;

// The last rank's results, and the memory that it took. (A dry run is that of
// the last rank.)
struct Ran {
  Values values;
  MemoryUse memory;
};
Ran on(Device* device, const std::string& mesh,
       const std::function<Tensors(const Mesh&)>& fn) {
  Ran ran;
  RunOptions options;
  options.world = Mesh::parse(mesh).num_ranks();
  options.dry_run = !device;
  if (device) options.device = [&](int64_t) -> Device& { return *device; };
  run(options, [&](Runtime& rt) {
    Values values;
    for (const DistTensor& x : fn(Mesh::parse(mesh)))
      values.push_back(x.full().to_doubles());
    if (device && rt.rank() + 1 != options.world) return;
    ran = {std::move(values), memory_use(*rt.context().allocator)};
  });
  return ran;
}

// Products, views, an attention-like part, a function with its own gradient
// and a checkpoint, with a result that the gradient of its last call reads.
DistTensor block(const DistTensor& x, const DistTensor& up,
                 const DistTensor& down) {
  const DistTensor h = matmul(x, up);
  const DistTensor gate = slice(h, 1, 0, 8), rest = slice(h, 1, 8, 16);
  const DistTensor mixed = softmax(gate, 1) * gelu(rest);
  const DistTensor inner = checkpoint(
      [=](const DistTensor& y) { return tanh(matmul(y, down)); }, mixed);
  const auto twice =
      custom_function([](const Tensors& in) { return Tensors{in[0] * in[0]}; },
                      [](const CustomCall& c) {
                        return Tensors{c.cotangents[0] * c.inputs[0] * 2.0};
                      });
  const DistTensor own = twice({inner})[0];
  return sigmoid(x + own);
}

enum class Pass { kReleased, kKept, kSecond };

Tensors trained(const Mesh& m, bool offload, Pass pass) {
  const auto leaf = [&](const Shape& shape, const char* layout, uint64_t i) {
    return randn(shape, m, Placements(layout), DType::kF32, {7, i})
        .set_requires_grad();
  };
  const bool two = m.num_axes() == 2;
  const DistTensor x = leaf({30, 8}, two ? "S0,R" : "S0", 1),
                   up = leaf({8, 16}, two ? "R,S1" : "R", 2),
                   down = leaf({8, 8}, two ? "R,S0" : "R", 3);
  DistTensor y = x;
  for (int i = 0; i < 4; ++i) {
    const auto f = [=](const DistTensor& in) { return block(in, up, down); };
    y = offload ? save_on_host(f, y) : f(y);
  }
  const Tensors leaves = {x, up, down};
  if (pass == Pass::kReleased)
    return grad(sum(y * y), leaves, {.release_graph = true});
  const DistTensor loss = sum(y * y);
  Tensors all = grad(loss, leaves, {.create_graph = pass == Pass::kSecond});
  if (pass == Pass::kKept) {
    for (DistTensor& g : grad(loss, leaves)) all.push_back(std::move(g));
    return all;
  }
  DistTensor squares;
  for (const DistTensor& g : all)
    squares = squares.defined() ? squares + sum(g * g) : sum(g * g);
  for (DistTensor& g : grad(squares, leaves)) all.push_back(std::move(g));
  return all;
}

class SaveOnHost : public ::testing::TestWithParam<LateDevice> {};
INSTANTIATE_TEST_SUITE_P(Devices, SaveOnHost, ::testing::ValuesIn(kLateDevices),
                         [](const auto& info) { return name(info.param); });

TEST_P(SaveOnHost, KeepsTheBitsAndNeedsLess) {
  const std::shared_ptr<Device> device = make_device(GetParam());
  if (!device) GTEST_SKIP() << no_gpu();
  for (const char* mesh : {"a=1", "a=4", "a=2,b=2"})
    for (const Pass pass : {Pass::kReleased, Pass::kKept, Pass::kSecond}) {
      const auto plain = [&](const Mesh& m) { return trained(m, false, pass); };
      const auto away = [&](const Mesh& m) { return trained(m, true, pass); };
      const Ran want = on(device.get(), mesh, plain),
                got = on(device.get(), mesh, away);
      EXPECT_EQ(got.values, want.values) << mesh;
      EXPECT_EQ(want.memory.host, 0);
      EXPECT_GT(got.memory.host, 0);
      // The graph of the first gradients is not offloaded.
      if (pass != Pass::kSecond) {
        EXPECT_LT(got.memory.peak, want.memory.peak * 3 / 4) << mesh;
      }
      for (const auto& [real, fn] :
           {std::pair<const Ran&, std::function<Tensors(const Mesh&)>>(want,
                                                                       plain),
            {got, away}}) {
        const Ran dry = on(nullptr, mesh, fn);
        EXPECT_EQ(dry.memory.peak, real.memory.peak) << mesh;
        EXPECT_EQ(dry.memory.host, real.memory.host) << mesh;
      }
    }
}

// The input comes back for another use, and an input that is written to in
// place is still refused.
TEST_P(SaveOnHost, InputsMayBeUsedAgain) {
  const std::shared_ptr<Device> device = make_device(GetParam());
  if (!device) GTEST_SKIP() << no_gpu();
  std::atomic<int> told = 0;
  const auto fn = [&](bool offload) {
    return [&, offload](const Mesh& m) -> Tensors {
      const DistTensor x = randn({6, 8}, m, Placements("S0"), DType::kF32, {7})
                               .set_requires_grad();
      const DistTensor h = tanh(x);
      const auto f = [](const DistTensor& in) { return exp(in * in); };
      const DistTensor y = h + (offload ? save_on_host(f, h) : f(h));
      Tensors all = grad(sum(y * y), {x});
      {
        const NoGrad no_grad;
        h.local().fill(0.5);
      }
      all.push_back(h);
      told += error_of([&] {
                grad(sum(y), {x});
              }).find("was changed in place after it was used") !=
              std::string::npos;
      return all;
    };
  };
  EXPECT_EQ(on(device.get(), "a=2", fn(true)).values,
            on(device.get(), "a=2", fn(false)).values);
  EXPECT_EQ(told, 4);
}

TEST(SaveOnHostTest, DoesNothingOnACpuAndWithoutAGradient) {
  const auto fn = [](const Mesh& m) -> Tensors {
    return trained(m, true, Pass::kReleased);
  };
  EXPECT_EQ(on(&cpu(), "a=2,b=2", fn).memory.host, 0);
  const auto none = [](const Mesh& m) -> Tensors {
    const NoGrad no_grad;
    return {save_on_host([](const DistTensor& x) { return tanh(x); },
                         randn({4}, m))};
  };
  EXPECT_EQ(on(nullptr, "a=2", none).memory.host, 0);
  run(1, [&](Runtime&) {
    EXPECT_EQ(error_of([] {
                save_on_host([](const Tensors&) { return Tensors(1); }, {});
              }),
              "[save_on_host] result 0 of the function is undefined; return "
              "defined tensors");
  });
}

}  // namespace
}  // namespace dtensor
