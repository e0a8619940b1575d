// SPDX-License-Identifier: Apache-2.0
// Ranks that reduce different values of one layout, type and size are told so
// at that call, before an output is touched.
#include <gtest/gtest.h>

#include <string>

#include "dtensor/dtensor.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// One rank reads one value more than the others.
TEST(RanksReduceDifferentValues, AValueReadByOneRankAlone) {
  run(4, [](Runtime& rt) {
    const Mesh mesh = Mesh::parse("dp=2,tp=2");
    const auto x = randn({8, 6}, mesh, {{"dp", Shard(0)}, {"tp", Shard(1)}});
    const auto loss = mean(x), accuracy = mean(square(x));
    const std::string error = error_of([&] {
      if (rt.rank() == 0) loss.item();
      accuracy.item();
    });
    EXPECT_TRUE(says(error, "[all-reduce] ranks 0 and")) << error;
    // A mean is a sum and a division.
    EXPECT_TRUE(says(error, "made by div_scalar, operator 1 of the program"))
        << error;
    EXPECT_TRUE(says(error, "made by div_scalar, operator 4 of the program"))
        << error;
  });
}

// One rank runs another operator of the same shapes, in a module.
TEST(RanksReduceDifferentValues, AnotherOperator) {
  run(2, [](Runtime& rt) {
    const Mesh mesh = Mesh::parse("tp=2");
    const auto x = ones({8}, mesh, "S0");
    const std::string error = error_of([&] {
      const PathScope path("model.head");
      const auto y = rt.rank() == 1 ? exp(x) : neg(x);
      sum(y).item();
    });
    EXPECT_TRUE(says(error, "disagree about collective")) << error;
    EXPECT_TRUE(says(error, "made by sum, operator 1 of model.head")) << error;
  });
}

// One rank runs one operator more before the collective, or passes another
// number.
TEST(RanksReduceDifferentValues, OneOperatorMore) {
  for (const double number : {0.0, 1.0, 3.0})
    run(2, [&](Runtime& rt) {
      const Mesh mesh = Mesh::parse("tp=2");
      auto x = ones({8}, mesh, "S0");
      const std::string error = error_of([&] {
        if (number == 0.0)
          x = rt.rank() == 1 ? mul(x, 2.0) : x;
        else
          x = mul(x, rt.rank() == 1 ? number : 2.0);
        x.redistribute("R");
      });
      EXPECT_TRUE(says(error, "disagree about collective")) << error;
    });
}

// An argument of one rank differs that is no number: which elements are taken.
TEST(RanksReduceDifferentValues, AnotherArgument) {
  run(2, [](Runtime& rt) {
    const Mesh mesh = Mesh::parse("tp=2");
    const auto x = ones({8, 4}, mesh, "S0");
    const std::string error = error_of(
        [&] { topk(x, 2, -1, rt.rank() == 1).values.redistribute("R"); });
    EXPECT_TRUE(says(error, "disagree about collective")) << error;
  });
}

// A collective inside an operator (softmax) compares how its input was made.
TEST(RanksReduceDifferentValues, InputsOfAnOperator) {
  run(2, [](Runtime& rt) {
    const Mesh mesh = Mesh::parse("tp=2");
    const auto x = ones({4, 4}, mesh, "S0"), y = ones({4, 4}, mesh, "S1");
    const std::string error = error_of([&] {
      const PathScope path("block");
      const auto a = rt.rank() == 1 ? exp(x) : x;
      softmax(a, 0);
      add(a, y);
    });
    EXPECT_TRUE(says(error, "disagree about collective")) << error;
    EXPECT_TRUE(says(error, "of block")) << error;
  });
}

// Gradients, and moves on the ranks' other threads, are compared too.
TEST(RanksReduceDifferentValues, AGradient) {
  run(2, [](Runtime& rt) {
    const Mesh mesh = Mesh::parse("dp=2");
    auto w = ones({4}, mesh, "R").as_parameter();
    const auto x = ones({8, 4}, mesh, "S0");
    const std::string error = error_of([&] {
      const auto y = mul(x, w);
      const auto loss = rt.rank() == 0 ? sum(exp(y)) : sum(sin(y));
      grad(loss, {w})[0].local();
    });
    EXPECT_TRUE(says(error, "disagree about collective")) << error;
  });
}
TEST(RanksReduceDifferentValues, AnAsyncMove) {
  const std::string error = error_of([] {
    run(2, [](Runtime& rt) {
      const Mesh mesh = Mesh::parse("dp=2");
      const auto x = ones({8}, mesh, "S0");
      const auto y = rt.rank() == 0 ? exp(x) : sin(x);
      y.redistribute_async("R").local();
    });
  });
  EXPECT_TRUE(says(error, "disagree about collective")) << error;
  EXPECT_TRUE(says(error, "made by sin, operator 0")) << error;
}

// Computing something alone, without a collective, is allowed: by ranks of one
// mesh, and by those of a mesh of their own.
TEST(RanksReduceDifferentValues, OneRankMayComputeAlone) {
  run(4, [](Runtime& rt) {
    const Mesh mesh = Mesh::parse("dp=2,tp=2");
    const auto x = ones({8, 6}, mesh, {{"dp", Shard(0)}, {"tp", Shard(1)}});
    if (rt.rank() == 0) {
      const PathScope path("print");
      EXPECT_EQ(mul(exp(x), 2.0).local().numel(), 12);
      const auto alone = ones({3}, Mesh::parse("one=1"), "R");
      EXPECT_EQ(sum(alone).item(), 3);
      EXPECT_EQ(zeros_like(x).local().numel(), 12);
    }
    EXPECT_EQ(sum(x).item(), 48);
    EXPECT_EQ(softmax(x, 1).full().numel(), 48);
  });
}

// Values from another mesh may be made by operators that only some ranks ran.
TEST(RanksReduceDifferentValues, AcrossMeshesRanksKnowTheirOwnOperators) {
  run(2, [](Runtime& rt) {
    const Mesh first = Mesh::parse("a=1 of ranks 0"),
               second = Mesh::parse("b=1 of ranks 1"),
               both = Mesh::parse("c=2");
    auto x = DistTensor::empty(Spec::replicated(first, {4}, DType::kF64));
    if (rt.rank() == 0) x = full({4}, 3, first, {}, DType::kF64);
    auto y = x.redistribute(both, "S0");
    EXPECT_EQ(sum(y).item(), 12);
    if (rt.rank() == 1) y = mul(y, 1.0);
    const auto z = y.redistribute(second, "R");
    if (rt.rank() == 1) {
      EXPECT_EQ(sum(z).item(), 12);
    }
  });
}

}  // namespace
}  // namespace dtensor
