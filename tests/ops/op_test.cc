// SPDX-License-Identifier: Apache-2.0
// The behaviour of apply() that all operators share.
#include "dtensor/ops/op.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

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
    // The redistribute() that the message asks for makes the call work.
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

// Prices at which computation is expensive.
RunOptions with_dear_work(int64_t world) {
  RunOptions options;
  options.world = world;
  options.cost.ps_per_local_byte = 1e7;
  return options;
}

// The bytes that this rank is predicted to receive while fn() runs.
int64_t received(Runtime& rt, const std::function<void()>& fn) {
  rt.context().record = true;
  rt.context().events.clear();
  fn();
  int64_t sum = 0;
  for (const CommEvent& e : rt.context().events) sum += e.predicted;
  return sum;
}

// y[i, j] = x[i, n - 1 - j]: every rank needs the whole of a row.
class Mirrored final : public RuleOp {
 public:
  Mirrored() : RuleOp("mirrored", "mn!->mn | linear 0", {.saved_inputs = 0}) {}
  void compute(Compute& c) const override {
    const Tensor x = c.in[0].to_contiguous();
    const int64_t n = x.shape()[1];
    for (int64_t i = 0; i < x.numel(); ++i)
      c.out[0].mutable_ptr<double>()[i / n * n + n - 1 - i % n] =
          x.ptr<double>()[i];
  }
  InputGradients gradient(const GradientCall& g) const override {
    return {apply1(*this, g.cotangents)};
  }
};

// An operator with more outputs than a call can hold.
class Copies final : public RuleOp {
 public:
  Copies()
      : RuleOp("copies", "n->n,n,n,n,n,n,n,n,n", {.differentiable = false}) {}
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    return std::vector<DType>(9, in[0]);
  }
  void compute(Compute&) const override {}
};

// An operator that is differentiable, but does not say how.
class Ungraded final : public RuleOp {
 public:
  Ungraded() : RuleOp("ungraded", "n->n") {}
  void compute(Compute& c) const override { c.out[0].copy_from(c.in[0]); }
};

TEST(OpTest, AMissingGradientIsASentence) {
  static const Ungraded op;
  run(1, [&](Runtime& rt) {
    const DistTensor x = zeros({4}, rt.mesh({{"a", 1}})).set_requires_grad();
    const DistTensor y = sum(apply1(op, {x}));
    EXPECT_NE(error_of([&] {
                grad(y, {x});
              }).find("[ungraded] has no gradient; detach() its inputs"),
              std::string::npos);
  });
}

TEST(OpTest, NineOutputsAreASentence) {
  static const Copies op;
  run(1, [&](Runtime& rt) {
    EXPECT_EQ(error_of([&] {
                apply(op, {zeros({4}, rt.mesh({{"a", 1}}))});
              }),
              "[copies] has 9 outputs, but an operator has at most 8; write "
              "several operators");
  });
}

// Rows are split along the pinned factor n. They move to where whole rows are,
// and every rank computes its share of the rows.
TEST(OpTest, AnAxisOfAPinnedFactorSplitsTheWork) {
  static const Mirrored op;
  const Mesh mesh = Mesh::parse("x=3");
  run(with_dear_work(3), [&](Runtime& rt) {
    const DistTensor x = numbers({6, 9}, mesh, "S1").set_requires_grad();
    DistTensor y;
    // Each rank has 3 of the 9 elements of its 2 rows.
    EXPECT_EQ(received(rt, [&] { y = apply1(op, {x}); }), 2 * 6 * 8);
    EXPECT_EQ(y.layout().to_string(mesh), "S0");
    // The gradient of y * y / 2 is y, mirrored back.
    const DistTensor dx = grad(sum(mul(y, y.detach())), {x})[0];
    EXPECT_EQ(dx.layout().to_string(mesh), "S1");
    const Tensor back = dx.full(), given = x.full(), made = y.full();
    for (int64_t i = 0; i < 54; ++i) {
      EXPECT_EQ(made.ptr<double>()[i],
                given.ptr<double>()[i / 9 * 9 + 8 - i % 9]);
      EXPECT_EQ(back.ptr<double>()[i], given.ptr<double>()[i]);
    }
  });
}

// x is partial: one rank has v, the other 2 v. Without gradients, it is reduced
// into parts, not to a whole value on each rank.
TEST(OpTest, WithoutGradientsAPartialInputIsSplitIfTheWorkPays) {
  const Mesh mesh = Mesh::parse("tp=2");
  run(with_dear_work(2), [&](Runtime& rt) {
    const auto partial = [&] {
      std::vector<double> term;
      for (int i = 0; i < 54; ++i)
        term.push_back(static_cast<double>((rt.rank() + 1) * i) / 90);
      return DistTensor::from_local(Tensor::from({6, 9}, term.data()), mesh,
                                    {{"tp", PartialOf()}}, {6, 9});
    };
    const auto check = [](const DistTensor& y) {
      const Tensor values = y.full();
      for (int64_t i = 0; i < 54; ++i) {
        double all = 0;
        for (int64_t j = i / 9 * 9; j < i / 9 * 9 + 9; ++j)
          all += std::exp(static_cast<double>(j) / 30);
        EXPECT_NEAR(values.ptr<double>()[i],
                    std::exp(static_cast<double>(i) / 30) / all, 1e-14);
      }
    };
    DistTensor x = partial(), y;
    EXPECT_EQ(received(rt, [&] { y = softmax(x, 1); }), 54 * 8);
    EXPECT_EQ(y.layout().to_string(mesh), "R");
    check(y);
    {
      const NoGrad no_grad;
      x = partial();
      EXPECT_EQ(received(rt, [&] { y = softmax(x, 1); }), 27 * 8);
      EXPECT_EQ(y.layout().to_string(mesh), "S0");
      check(y);
    }
    // checkpoint() runs the function again with gradients recorded, so its
    // first run must choose the same layout.
    x = partial().set_requires_grad();
    const auto twice = [](const std::vector<DistTensor>& in) {
      return std::vector{softmax(in[0], 1)};
    };
    y = checkpoint(twice, {x})[0];
    EXPECT_EQ(y.layout().to_string(mesh), "R");
    check(y);
    EXPECT_EQ(grad(sum(y), {x})[0].shape(), (Shape{6, 9}));
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
