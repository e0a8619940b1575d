// SPDX-License-Identifier: Apache-2.0
// What apply() does for every operator alike.
#include "dtensor/ops/op.h"

#include <gtest/gtest.h>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/runtime.h"
#include "dtensor/scopes.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;

DistTensor numbers(const Shape& s, const Mesh& m, const Placements& p,
                   uint64_t stream = 1) {
  return randn(s, m, p, DType::kF64, {3, stream});
}

TEST(OpTest, ExplicitOnlyNamesTheRedistribute) {
  Mesh mesh = Mesh::parse("tp=2");
  run(2, [&](Runtime& rt) {
    rt.context().record = true;
    DistTensor a = numbers({4, 6}, mesh, "S0"), b = numbers({6, 4}, mesh, "S0");
    ExplicitOnly scope;
    std::string m = error_of([&] { matmul(a, b); });
    EXPECT_NE(m.find("[matmul] would have to communicate"), m.npos) << m;
    EXPECT_NE(m.find("x.redistribute(\"R\")"), m.npos) << m;
    EXPECT_TRUE(rt.context().events.empty());
    // What it asks for works.
    EXPECT_EQ(matmul(a, b.redistribute("R")).layout().to_string(mesh), "S0");
    m = error_of([&] { softmax(b, 0); });
    EXPECT_NE(m.find("[softmax] would have to communicate"), m.npos) << m;
    EXPECT_EQ(softmax(b, 1).layout().to_string(mesh), "S0");
  });
}

TEST(OpTest, TakesListsOfEveryForm) {
  run(1, [&](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"dp", 1}});
    const DistTensor a = ones({2}, mesh), b = ones({3}, mesh);
    const auto tensors = [](TensorList list) {
      std::vector<const DistTensor::Impl*> all;
      for (const DistTensor& x : list) all.push_back(x.impl().get());
      return all;
    };
    const std::vector both{a, b};
    const DistTensor array[] = {a, b};
    const auto want = tensors(both);
    EXPECT_EQ(want, (std::vector<const DistTensor::Impl*>{a.impl().get(),
                                                          b.impl().get()}));
    EXPECT_EQ(tensors({a, b}), want);
    EXPECT_EQ(tensors(array), want);
    EXPECT_EQ(tensors(std::span(both)), want);
    EXPECT_EQ(tensors({both.begin(), both.end()}), want);
    EXPECT_EQ(tensors(b), tensors({b}));
    EXPECT_EQ(tensors(b), tensors(std::span(both).last(1)));
    EXPECT_TRUE(tensors({}).empty());
  });
}

TEST(OpTest, BudgetsAreSpentAndKept) {
  Mesh mesh = Mesh::parse("tp=2");
  run(2, [&](Runtime&) {
    DistTensor a = numbers({8}, mesh, "S0");
    CommBudget outer(100);
    {
      CommBudget inner(1000);
      EXPECT_EQ(inner.left(), 100);
      a.redistribute("R");  // 4 elements of 8 bytes
      EXPECT_EQ(inner.left(), 68);
    }
    EXPECT_EQ(outer.left(), 68);
    NoComm none;
    EXPECT_NO_THROW(exp(a));
    DistTensor fresh = numbers({8}, mesh, "S0", 2);
    EXPECT_THROW(fresh.redistribute("R"), Error);
    EXPECT_THROW(fresh.item(), Error);
  });
}

TEST(OpTest, TwoMeshesAndWrongShapesAreSentences) {
  Mesh one = Mesh::parse("x=2"), two = Mesh::parse("y=2");
  run(2, [&](Runtime&) {
    DistTensor a = numbers({4, 6}, one, "S0"), b = numbers({6, 4}, two, "S0");
    std::string m = error_of([&] { matmul(a, b); });
    EXPECT_NE(m.find("[matmul] inputs are on two meshes, x=2 and y=2"), m.npos)
        << m;
    m = error_of([&] { matmul(a, a); });
    EXPECT_NE(m.find("[4, 6]"), m.npos) << m;
    EXPECT_NE(m.find("both 6 and 4"), m.npos) << m;
    m = error_of([&] { add(a, numbers({5, 6}, one, "R")); });
    EXPECT_NE(m.find("do not broadcast"), m.npos) << m;
    EXPECT_THROW(sum(a, {2}), Error);
    EXPECT_THROW(sum(a, {0, 0}), Error);
    EXPECT_THROW(einsum("ab,ab->abc", {a, a}), Error);
    EXPECT_THROW(einsum("aa->a", {a}), Error);
  });
}

TEST(OpTest, DecisionsAreRemembered) {
  Mesh mesh = Mesh::parse("tp=2");
  run(2, [&](Runtime&) {
    DistTensor a = numbers({4, 6}, mesh, "S0"), b = numbers({6, 4}, mesh, "R");
    OpInput in[] = {{a.spec()}, {b.spec()}};
    EXPECT_EQ(decide(matmul_op(), in), decide(matmul_op(), in));
    OpInput stays[] = {{a.spec()}, {b.spec(), Keep::kStay}};
    OpInput gathers[] = {{a.spec()}, {b.spec(), Keep::kGatherOnUse}};
    EXPECT_NE(decide(matmul_op(), in), decide(matmul_op(), stays));
    EXPECT_NE(decide(matmul_op(), in), decide(matmul_op(), gathers));
    EXPECT_NE(decide(matmul_op(), stays), decide(matmul_op(), gathers));
  });
}

TEST(OpTest, ParametersStay) {
  // As soon as there are more tokens than hidden columns an honest price would
  // gather the weight instead of the activations.
  Mesh mesh = Mesh::parse("tp=2");
  run(2, [&](Runtime& rt) {
    DistTensor x = numbers({512, 4}, mesh, "S0");
    DistTensor w = numbers({4, 4}, mesh, "S1");
    rt.context().record = true;
    EXPECT_EQ(matmul(x, w).layout().to_string(mesh), "S0");
    DistTensor p = w.detach().as_parameter();
    EXPECT_EQ(matmul(x, p).layout().to_string(mesh), "S1");
    // Two parameters that only meet by moving one.
    DistTensor q = numbers({4, 4}, mesh, "S0").as_parameter();
    std::string m = error_of([&] { add(p, q); });
    EXPECT_NE(m.find("without sending a parameter"), m.npos) << m;
  });
}

TEST(OpTest, InPlaceChangesAreSeen) {
  Mesh mesh = Mesh::parse("tp=1");
  run(1, [&](Runtime&) {
    DistTensor x = numbers({3}, mesh, {}).set_requires_grad();
    DistTensor y = sum(square(x));
    {
      NoGrad no_grad;
      x.assign(Tensor::full({3}, DType::kF64, 1));
    }
    std::string m = error_of([&] { grad(y, {x}); });
    EXPECT_NE(m.find("changed in place"), m.npos) << m;
    EXPECT_THROW(x.assign(Tensor::full({3}, DType::kF64, 1)), Error);
  });
}

TEST(OpTest, GradientsMayStayPartial) {
  Mesh mesh = Mesh::parse("dp=2");
  run(2, [&](Runtime& rt) {
    DistTensor w = numbers({6, 3}, mesh, {}).as_parameter();
    DistTensor x = numbers({4, 6}, mesh, "S0", 2);
    DistTensor y = numbers({4, 6}, mesh, "S0", 3);
    auto loss = [&](const DistTensor& in) {
      return sum(square(matmul(in, w)));
    };
    DistTensor a = grad(loss(x), {w})[0], b = grad(loss(y), {w})[0];
    Tensor settled = (a + b).full();
    rt.context().record = true;
    DistTensor pa = grad(loss(x), {w}, {.keep_partial = true})[0];
    DistTensor pb = grad(loss(y), {w}, {.keep_partial = true})[0];
    DistTensor both = pa + pb;
    EXPECT_TRUE(rt.context().events.empty());
    EXPECT_EQ(both.layout().to_string(mesh), "P");
    Tensor late = both.redistribute("R").local();
    EXPECT_EQ(rt.context().events.size(), 1u);
    for (int64_t i = 0; i < late.numel(); ++i)
      EXPECT_NEAR(late.at(i), settled.at(i), 1e-12);
  });
}

TEST(OpTest, ViewsThatNoTreeSaysAreRefusedAndReshapeMoves) {
  Mesh mesh = Mesh::parse("a=3");
  run(3, [&](Runtime&) {
    DistTensor x = numbers({6}, mesh, "S0");
    std::string m = error_of([&] { view(x, {2, 3}); });
    EXPECT_NE(m.find("[view] f64[6](S0) cannot be viewed as [2, 3]"), m.npos)
        << m;
    EXPECT_NE(m.find("x.redistribute(\""), m.npos) << m;
    Tensor whole = x.full(), shaped = reshape(x, {2, 3}).full();
    for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(shaped.at(i), whole.at(i));
  });
}

}  // namespace
}  // namespace dtensor
