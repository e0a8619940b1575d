// SPDX-License-Identifier: Apache-2.0
// An optimizer over a parameter that the rank has no part of, or that lies on
// another mesh, threw on these ranks; the norm of such gradients did, too. A
// bf16 parameter that was written to went back to the old master copy. AdamW
// decayed no vectors, where torch does. A part that is not contiguous was
// refused. A NaN norm left the gradients as they were. A segment that is whole
// where another is split was counted once per rank. A tensor that was listed
// twice was updated twice.
#include "dtensor/nn/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "dtensor/autograd.h"
#include "dtensor/dist_tensor_impl.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/placement/error.h"
#include "dtensor/runtime.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

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
    EXPECT_EQ(optimizer.state().size(), 2u);  // the steps
  });
}

// It was updated twice.
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
  // All ranks see it, whichever has the NaN.
  const Mesh m = Mesh::parse("a=3");
  run(3, [&](Runtime& rt) {
    const double mine = rt.rank() == 1 ? nan : 1;
    const DistTensor g = DistTensor::from_local(
        Tensor::full({1}, DType::kF64, mine), m, "S0", {3});
    EXPECT_TRUE(std::isnan(global_norm({g})));
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
