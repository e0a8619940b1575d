// SPDX-License-Identifier: Apache-2.0
#include "dtensor/hooks.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtensor/dtensor.h"
#include "dtensor/split_backward.h"
#include "tests/array.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;
using testing::values;
using Values = std::vector<double>;

void on(const std::string& text, const std::function<void(const Mesh&)>& fn) {
  const Mesh mesh = Mesh::parse(text);
  run(mesh.num_ranks(), [&](Runtime&) { fn(mesh); });
}

DistTensor leaf(const Mesh& mesh, const char* layout = "") {
  return tensor({1., 2., 3.}, mesh, layout).set_requires_grad();
}

// y = 2 x, z = y * y + y: the hook on y sees the sum of both gradients, and
// what it returns goes on to x.
TEST(Hooks, SeeTheCompleteGradient) {
  for (const char* layout : {"R", "S0"})
    on("a=3", [&](const Mesh& mesh) {
      const DistTensor x = leaf(mesh, layout), y = x * 2;
      Values seen;
      const HookHandle handle = register_hook(y, [&](const DistTensor& g) {
        EXPECT_FALSE(grad_enabled());
        seen = values(g);
        return g * 10;
      });
      const auto g = grad(sum(y * y + y), {x, y});
      EXPECT_EQ(seen, (Values{5, 9, 13}));
      EXPECT_EQ(values(g[0]), (Values{100, 180, 260}));
      EXPECT_EQ(values(g[1]), (Values{50, 90, 130}));
    });
}

// The hooks of a parameter stay from one step to the next; they run in their
// order, until they are removed. A split forward's partial gradients reach them
// as one value.
TEST(Hooks, OfAParameter) {
  on("a=2", [](const Mesh& mesh) {
    const DistTensor w = leaf(mesh), x = ones({4, 3}, mesh, "S0");
    std::vector<int> calls;
    HookHandle first = register_hook(w, [&](const DistTensor& g) {
      calls.push_back(1);
      return g + 1;
    });
    register_hook(w, [&](const DistTensor& g) {
      calls.push_back(2);
      EXPECT_EQ(values(g)[0], calls.size() == 2 ? 5 : 4);
      return DistTensor();
    });
    EXPECT_EQ(values(grad(sum(x * w), {w})[0]), (Values{5, 5, 5}));
    first.remove();
    first.remove();
    EXPECT_EQ(values(grad(sum(x * w), {w})[0]), (Values{4, 4, 4}));
    EXPECT_EQ(calls, (std::vector<int>{1, 2, 2}));
    // Not on the way to the wanted gradient.
    const DistTensor v = leaf(mesh);
    grad(sum(v * w), {v});
    EXPECT_EQ(calls.size(), 3);
  });
}

TEST(Hooks, UnderCheckpointAndInSecondGradients) {
  on("a=2", [](const Mesh& mesh) {
    const DistTensor x = leaf(mesh, "S0");
    int calls = 0;
    const DistTensor y = checkpoint(
        [&](const DistTensor& a) {
          const DistTensor b = a * a;
          register_hook(b, [&](const DistTensor& g) { return ++calls, g * 3; });
          return b * 2;
        },
        x);
    EXPECT_EQ(calls, 0);
    EXPECT_EQ(values(grad(sum(y), {x})[0]), (Values{12, 24, 36}));
    EXPECT_EQ(calls, 1);
    // d/dx (3 * 3 x^2) by a hook that takes part in the second gradient.
    const DistTensor z = x * 1;
    register_hook(z, [](const DistTensor& g) { return g * 3; });
    const auto g = grad(sum(z * z * z), {x}, {.create_graph = true});
    EXPECT_EQ(values(g[0]), (Values{9, 36, 81}));
    EXPECT_EQ(values(grad(sum(g[0]), {x})[0]).size(), 3);
  });
}

TEST(Hooks, OfSplitGradients) {
  on("a=2", [](const Mesh& mesh) {
    const DistTensor x = leaf(mesh), w = leaf(mesh), y = x * w;
    const auto twice = [](const DistTensor& g) { return g * 2; };
    register_hook(x, twice), register_hook(w, twice), register_hook(y, twice);
    const DistTensor loss = sum(y), one = ones({}, mesh);
    SplitBackward pass({&loss, 1}, {&one, 1}, {x}, {w},
                       [](auto& a, auto& b) { return a + b; });
    EXPECT_EQ(values(pass.first()[0]), (Values{4, 8, 12}));
    EXPECT_EQ(values(pass.rest()[0]), (Values{4, 8, 12}));
  });
}

TEST(Hooks, Errors) {
  EXPECT_EQ(error_of([] {
              run(1, [](Runtime& rt) {
                register_hook(ones({2}, rt.mesh()), [](auto& g) { return g; });
              });
            }),
            "[register_hook] f32[2](R) requires no gradient; call "
            "set_requires_grad() on it before");
  EXPECT_EQ(error_of([] {
              run(1, [](Runtime& rt) {
                const DistTensor x = leaf(rt.mesh());
                register_hook(x, [](auto& g) { return sum(g); });
                grad(sum(x), {x});
              });
            }),
            "[register_hook] the hook returned f32[](R) for the gradient "
            "f32[3](R); return one of the same type and shape, on the same "
            "mesh");
  run(1, [](Runtime& rt) {
    const NoGrad no_grad;
    register_hook(ones({2}, rt.mesh()), [](auto& g) { return g; }).remove();
  });
}

}  // namespace
}  // namespace dtensor
