// SPDX-License-Identifier: Apache-2.0
// What redistribute() returned was a window on its source, or the copy that
// the source keeps for its next consumer, or the tensor that the call before
// had returned: a write to one changed the others, and they shared gradients
// and flags.
#include <gtest/gtest.h>

#include "dtensor/autograd.h"
#include "dtensor/dist_tensor_impl.h"
#include "dtensor/nn/optimizer.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/runtime.h"

namespace dtensor {
namespace {

constexpr DType kF64 = DType::kF64;

void expect_all(const DistTensor& x, double value, const std::string& what) {
  const Tensor t = x.full();
  for (int64_t i = 0; i < t.numel(); ++i)
    EXPECT_EQ(t.at(i), value) << what << ", element " << i;
}

// Layouts between which something is sent, is only sliced, and nothing is done.
const std::pair<const char*, const char*> kMoves[] = {
    {"S1", "S0"}, {"S0", "R"},  {"R", "S0"}, {"R", "S1"},
    {"R", "R"},   {"S0", "S0"}, {"R", "P"},  {"P", "R"}};

TEST(RedistributeAliases, TwoParametersOfOneTensorAreTwo) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    for (const auto& [from, to] : kMoves) {
      if (std::string(to) == "P") continue;
      const std::string what = std::string(from) + " -> " + to;
      const DistTensor x = ones({2, 2}, m, from, kF64);
      DistTensor w1 = x.redistribute(to), w2 = x.redistribute(to);
      w1.as_parameter();
      EXPECT_FALSE(x.requires_grad()) << what;
      EXPECT_FALSE(w2.requires_grad()) << what;
      w2.as_parameter();
      nn::SGD opt({w1, w2});
      const auto g = grad(sum(w1 * 2.0) + sum(w2 * 3.0), {w1, w2});
      opt.step(g, {.lr = 1});
      expect_all(w1, -1, what);
      expect_all(w2, -2, what);
      expect_all(x, 1, what);
      expect_all(x.redistribute(to), 1, what);
    }
  });
}

TEST(RedistributeAliases, AWriteStaysWhereItWasMade) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    for (const auto& [from, to] : kMoves) {
      const std::string what = std::string(from) + " -> " + to;
      const DistTensor x = ones({2, 2}, m, from, kF64);
      // An operator has made such a copy before, or will have to.
      for (bool used : {false, true}) {
        const DistTensor there = zeros({2, 2}, m, to, kF64);
        if (used) expect_all(add(there, x), 1, what);
        DistTensor y = x.redistribute(to), z = x.redistribute(to);
        y.assign(Tensor::full(y.local().shape(), kF64, 7));
        expect_all(x, 1, what);
        expect_all(z, 1, what);
        expect_all(add(there, x), 1, what);
        expect_all(x.redistribute(to), 1, what);
      }
      // Nor does a write to the source reach what was made of it.
      DistTensor source = ones({2, 2}, m, from, kF64);
      const DistTensor before = source.redistribute(to);
      source.assign(Tensor::full(source.local().shape(), kF64, 5));
      expect_all(before, 1, what);
    }
  });
}

// A view of the copy that an operator made for itself is written to.
TEST(RedistributeAliases, TheCopyOfAnOperatorIsNotTakenAgainWhenItWasChanged) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const DistTensor x = ones({2, 2}, m, "S1", kF64);
    const DistTensor zero = zeros({2, 2}, m, "S0", kF64);
    expect_all(add(zero, x), 1, "before");
    for (auto& copy : x.impl()->copies) copy.tensor.impl()->local.fill(9);
    expect_all(add(zero, x), 1, "after");
  });
}

TEST(RedistributeAliases, EachHasAGradientOfItsOwn) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    for (const auto& [from, to] : kMoves) {
      const std::string what = std::string(from) + " -> " + to;
      DistTensor x = ones({2, 2}, m, from, kF64).set_requires_grad();
      const DistTensor y1 = x.redistribute(to), y2 = x.redistribute(to);
      const auto g = grad(sum(y1 * 2.0 + y2 * 3.0), {y1, y2, x});
      expect_all(g[0], 2, what);
      expect_all(g[1], 3, what);
      expect_all(g[2], 5, what);
    }
  });
}

TEST(RedistributeAliases, AsynchronousResultsToo) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const DistTensor x = ones({2, 2}, m, "S1", kF64);
    DistTensor y = x.redistribute_async("S0"), z = x.redistribute_async("S0");
    y.assign(Tensor::full(y.local().shape(), kF64, 7));
    expect_all(z, 1, "another result");
    expect_all(x.redistribute("S0"), 1, "a later one");
    expect_all(y, 7, "itself");
  });
}

// What is of no use to anybody else is not kept, and has no gaps: an optimizer
// takes it.
TEST(RedistributeAliases, APartThatWasCutOutIsContiguous) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const DistTensor w = ones({4, 4}, m, {}, kF64).redistribute("S1");
    EXPECT_TRUE(w.local().contiguous());
    EXPECT_EQ(w.local().storage()->bytes(), 64);
  });
}

}  // namespace
}  // namespace dtensor
