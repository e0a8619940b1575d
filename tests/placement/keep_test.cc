// SPDX-License-Identifier: Apache-2.0
// How operators treat a parameter, as the argument of as_parameter() allows.
#include "dtensor/placement/keep.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtensor/comm_event.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/testing.h"

namespace dtensor {

std::ostream& operator<<(std::ostream& out, Keep k) {
  constexpr const char* kNames[] = {"kMove", "kStay", "kGatherOnUse"};
  return out << kNames[static_cast<size_t>(k)];
}

namespace {

using testing::error_of;

DistTensor numbers(const Shape& s, const Mesh& m, const Placements& p,
                   uint64_t stream = 1) {
  return randn(s, m, p, DType::kF64, {3, stream});
}

// The collectives since the last call.
std::vector<StepKind> sent(Runtime& rt) {
  std::vector<StepKind> kinds;
  for (const CommEvent& e : rt.context().events) kinds.push_back(e.kind);
  rt.context().events.clear();
  return kinds;
}

// With so many more rows than columns the cheapest is to gather the weight.
struct Product {
  explicit Product(const Mesh& mesh)
      : x(numbers({512, 4}, mesh, "S0")), w(numbers({4, 4}, mesh, "S1", 2)) {}
  DistTensor x, w;
};

const std::vector<StepKind> kNothing, kGather = {StepKind::kAllGather};

TEST(Keep, AParameterStaysUnlessItSaysOtherwise) {
  const Mesh mesh = Mesh::parse("tp=2");
  run(2, [&](Runtime& rt) {
    EXPECT_EQ(DistTensor().keep(), Keep::kMove);
    for (const bool named : {false, true}) {
      Product p(mesh);
      EXPECT_EQ(p.w.keep(), Keep::kMove);
      if (named)
        p.w.as_parameter(Keep::kStay);
      else
        p.w.as_parameter();
      EXPECT_EQ(p.w.keep(), Keep::kStay);
      EXPECT_TRUE(p.w.requires_grad());
      rt.context().record = true;
      EXPECT_EQ(matmul(p.x, p.w).layout().to_string(mesh), "S1");
      for (const CommEvent& e : rt.context().events)
        EXPECT_GE(e.predicted, p.x.local().bytes() / 2);
      rt.context().events.clear();
      // The last call counts.
      EXPECT_EQ(p.w.as_parameter(Keep::kGatherOnUse).keep(),
                Keep::kGatherOnUse);
      EXPECT_EQ(matmul(p.x, p.w).layout().to_string(mesh), "S0");
      EXPECT_EQ(p.w.as_parameter().keep(), Keep::kStay);
      rt.context().events.clear();
    }
  });
}

TEST(Keep, WhatIsGatheredOnUseIsGatheredByEveryUse) {
  const Mesh mesh = Mesh::parse("dp=2");
  run(2, [&](Runtime& rt) {
    for (const Keep keep : {Keep::kMove, Keep::kGatherOnUse}) {
      Product p(mesh);
      p.w.as_parameter(keep);
      rt.context().record = true;
      EXPECT_EQ(matmul(p.x, p.w).layout().to_string(mesh), "S0");
      EXPECT_EQ(sent(rt), kGather) << keep;
      // A second product takes the first one's copy of w if w may move.
      matmul(p.x * 2.0, p.w);
      EXPECT_EQ(sent(rt), keep == Keep::kMove ? kNothing : kGather) << keep;
      rt.context().record = false;
    }
  });
}

TEST(Keep, TheGradientIsTheSameAndLiesWithTheParameter) {
  const Mesh mesh = Mesh::parse("dp=2");
  run(2, [&](Runtime& rt) {
    std::vector<Tensor> whole;
    for (const Keep keep : {Keep::kStay, Keep::kMove, Keep::kGatherOnUse}) {
      Product p(mesh);
      p.w.as_parameter(keep);
      const DistTensor loss = sum(square(matmul(p.x, p.w)));
      rt.context().record = true;
      const DistTensor g = grad(loss, {p.w})[0];
      EXPECT_EQ(g.layout().to_string(mesh), "S1") << keep;
      const std::vector<StepKind> back = sent(rt);
      if (keep == Keep::kGatherOnUse) {
        EXPECT_EQ(back, std::vector{StepKind::kReduceScatter});
      }
      rt.context().record = false;
      whole.push_back(g.full());
    }
    for (int64_t i = 0; i < whole[0].numel(); ++i)
      for (const Tensor& t : whole) EXPECT_NEAR(t.at(i), whole[0].at(i), 1e-9);
  });
}

TEST(Keep, NothingButAGather) {
  const Mesh mesh = Mesh::parse("tp=2");
  run(2, [&](Runtime& rt) {
    const DistTensor stays = numbers({4, 4}, mesh, "S1").as_parameter();
    // An all-to-all would bring w to the layout of `stays`.
    DistTensor w = numbers({4, 4}, mesh, "S0", 2).as_parameter(Keep::kMove);
    EXPECT_EQ(add(stays, w).layout().to_string(mesh), "S1");
    w.as_parameter(Keep::kGatherOnUse);
    rt.context().record = true;
    const std::string e = error_of([&] { add(stays, w); });
    EXPECT_NE(e.find("no way to compute on f64[4, 4](S1) (parameter), f64[4, "
                     "4](S0) (parameter) without sending a parameter"),
              e.npos)
        << e;
    EXPECT_EQ(sent(rt), kNothing);
  });
}

TEST(Keep, OfWhatIsMadeOfParameters) {
  const Mesh mesh = Mesh::parse("tp=2");
  run(2, [&](Runtime&) {
    const auto parameter = [&](Keep keep, const char* layout = "S0") {
      return numbers({4, 4}, mesh, layout).as_parameter(keep);
    };
    for (const Keep keep : {Keep::kMove, Keep::kStay, Keep::kGatherOnUse}) {
      const DistTensor w = parameter(keep);
      EXPECT_EQ(w.detach().keep(), keep);
      EXPECT_EQ(transpose(w, 0, 1).keep(), keep);
      EXPECT_EQ((w * 2.0).keep(), Keep::kMove);
      EXPECT_EQ(w.redistribute("R").keep(), Keep::kMove);
      EXPECT_EQ(parameter(keep, "R").redistribute("S0").keep(), keep);
      EXPECT_EQ(cat({w, w}, 1).keep(), keep);
      EXPECT_EQ(cat({w, parameter(Keep::kMove)}, 1).keep(), Keep::kMove);
      EXPECT_EQ(cat({parameter(Keep::kStay), w}, 1).keep(),
                keep == Keep::kMove ? Keep::kMove : Keep::kStay);
    }
  });
}

TEST(Keep, WhatCannotBeIsRefused) {
  const Mesh mesh = Mesh::parse("tp=2");
  run(2, [&](Runtime&) {
    DistTensor partial = numbers({4}, mesh, "P");
    EXPECT_EQ(error_of([&] { partial.as_parameter(Keep::kGatherOnUse); }),
              "[as_parameter] f64[4](P) is partial, and gathering does not "
              "combine its parts; redistribute it first, or write Keep::kStay "
              "instead of kGatherOnUse");
    // The calls that failed changed nothing.
    EXPECT_EQ(partial.keep(), Keep::kMove);
    EXPECT_FALSE(partial.requires_grad());
    EXPECT_EQ(partial.as_parameter().keep(), Keep::kStay);
    EXPECT_EQ(
        error_of([&] { DistTensor().as_parameter(); }),
        "[as_parameter] an undefined tensor was used; assign one to it first");
  });
}

}  // namespace
}  // namespace dtensor
