// SPDX-License-Identifier: Apache-2.0
// A view, window, permutation or concatenation of a parameter is one as far as
// moving it goes, and no operator moves it, whatever its prices say.
#include <gtest/gtest.h>

#include "dtensor/comm_event.h"
#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/decision.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

DistTensor numbers(const Shape& s, const Mesh& m, const Placements& p,
                   uint64_t stream = 1) {
  return randn(s, m, p, DType::kF64, {3, stream});
}

TEST(ParametersStay, ThroughViews) {
  const Mesh mesh = Mesh::parse("tp=2");
  run(2, [&](Runtime&) {
    const DistTensor w = numbers({4, 8}, mesh, "S0").as_parameter();
    EXPECT_EQ(transpose(w, 0, 1).keep(), Keep::kStay);
    EXPECT_EQ(permute(w, {1, 0}).keep(), Keep::kStay);
    EXPECT_EQ(view(w, {4, 2, 4}).keep(), Keep::kStay);
    EXPECT_EQ(reshape(w, {2, 2, 8}).keep(), Keep::kStay);
    EXPECT_EQ(slice(w, 0, 1, 3).keep(), Keep::kStay);
    EXPECT_EQ(cat({w, w}, 1).keep(), Keep::kStay);
    EXPECT_EQ(cat({w, w.detach() * 2.0}, 1).keep(), Keep::kMove);
    EXPECT_EQ(transpose(w * 2.0, 0, 1).keep(), Keep::kMove);
  });
}

TEST(ParametersStay, NoTransposeIsGathered) {
  // With so many more rows than columns it is cheaper to gather the weight.
  const Mesh mesh = Mesh::parse("tp=2");
  run(2, [&](Runtime& rt) {
    const DistTensor x = numbers({512, 4}, mesh, "S0");
    DistTensor w = numbers({4, 4}, mesh, "S0");
    EXPECT_EQ(matmul(x, transpose(w, 0, 1)).layout().to_string(mesh), "S0");
    w = w.detach().as_parameter();
    const DistTensor t = transpose(w, 0, 1);
    rt.context().record = true;
    EXPECT_EQ(matmul(x, t).layout().to_string(mesh), "S1");
    for (const CommEvent& e : rt.context().events)
      EXPECT_GE(e.predicted, x.local().bytes() / 2) << e.op;
  });
}

TEST(ParametersStay, WhatWouldMoveThemIsRefused) {
  const Mesh mesh = Mesh::parse("a=3");
  run(3, [&](Runtime& rt) {
    const DistTensor w = numbers({6}, mesh, "S0").as_parameter();
    rt.context().record = true;
    const std::string e = testing::error_of([&] { reshape(w, {2, 3}); });
    EXPECT_NE(e.find("[reshape] no way to compute on f64[6](S0) (parameter) "
                     "without sending a parameter"),
              e.npos)
        << e;
    EXPECT_TRUE(rt.context().events.empty());
  });
}

TEST(ParametersStay, UnderAForcedAssignment) {
  const Mesh mesh = Mesh::parse("tp=2");
  run(2, [&](Runtime& rt) {
    const DistTensor x = numbers({4, 6}, mesh, "R");
    const DistTensor w = numbers({6, 8}, mesh, "S1").as_parameter();
    // One that splits the rows, which would gather the weight.
    const OpInput split[] = {
        {x.spec()->with(parse_layout("S0", mesh, x.shape()))},
        {w.spec()->with(Layout::replicated(w.shape()))}};
    const Assignment rows = decide(matmul_op(), split)->assignment;
    rt.context().record = true;
    const DistTensor both[] = {x, w};
    EXPECT_EQ(apply1(matmul_op(), both, {}, &rows).layout().to_string(mesh),
              "S1");
    EXPECT_TRUE(rt.context().events.empty());
  });
}

}  // namespace
}  // namespace dtensor
