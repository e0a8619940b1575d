// SPDX-License-Identifier: Apache-2.0
// LU factors and what follows from them. The gradients are those of Giles,
// "Collected matrix derivative results" (2008).
#include "dtensor/ops/linalg.h"

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/diagonal.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/kernels/reduce.h"
#include "dtensor/ops/linalg_op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/rows.h"
#include "dtensor/ops/statistics.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

// Runs kernels::Lu on copies of the matrices.
struct Factored {
  Factored(Compute& c, const Matrices& x)
      : lu(c.scratch({x.count, x.n, x.n}, x.t.dtype())),
        order(c.scratch({x.count, x.n}, DType::kI64)),
        parity(c.scratch({x.count}, x.t.dtype())),
        failed(c.scratch({x.count}, DType::kI64)) {
    run(c, x, lu, order, parity, failed);
  }
  static void run(Compute& c, const Matrices& x, const Tensor& lu,
                  const Tensor& order, const Tensor& parity,
                  const Tensor& failed) {
    c.run(kernels::Lu{.type = x.t.dtype(),
                      .count = x.count,
                      .n = x.n,
                      .x = x.data(),
                      .lu = lu.mutable_data(),
                      .order = order.mutable_ptr<int64_t>(),
                      .parity = parity.mutable_data(),
                      .failed = failed.mutable_ptr<int64_t>()});
  }
  Tensor lu, order, parity, failed;
};

// x -> both factors in one matrix, the order of the rows, its parity
class LuOp : public MatrixOp {
 public:
  LuOp()
      : MatrixOp(
            "lu", "...m!n!->...mn,...m,...",
            {.work = kFactorWork, .saved_inputs = 0, .saves_outputs = true}) {}
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs& attrs) const override {
    auto types = MatrixOp::out_dtypes(in, attrs);
    types[1] = DType::kI64;
    return types;
  }
  std::vector<Sample> samples() const override {
    // With other values, some matrix with ties is singular.
    return {{{{.shape = {5, 3, 3}, .lo = -1, .hi = 3}}, {}}, {{{{4, 4}}}, {}}};
  }
  void compute(Compute& c) const override {
    const Matrices x(c.in[0]);
    Factored::run(c, x, c.out[0], c.out[1], c.out[2],
                  c.scratch({x.count}, DType::kI64));
  }
  // For rows in the new order, dx = l^-T (the lower triangle of l^T dl and the
  // upper one of du u^T) u^-T.
  InputGradients gradient(const GradientCall& g) const override {
    check_first_only(g);
    const DistTensor &lu = g.outputs[0], &d = g.cotangents[0];
    const DistTensor lt = add(turned(tril(lu, -1)), unit_matrix(lu)),
                     ut = turned(triu(lu));
    const DistTensor inner =
        add(tril(matmul(lt, tril(d, -1)), -1), triu(matmul(triu(d), ut)));
    const DistTensor rows = divided(solved(lt, inner, true, true), ut, false);
    const DistTensor at = expand(by_row(g.outputs[1]), rows.shape());
    return {scatter_add(zeros_like(rows), -2, at, rows)};
  }
};

// The cofactors of x: det(x) x^-T, which is also finite if x is singular. Then
// pivots that are 0 are replaced by numbers close to 0, as in torch.
DistTensor cofactors(const DistTensor& x) {
  const auto parts = apply(op_of<LuOp>(), x);
  const DistTensor &lu = parts[0], pivots = diagonal(lu, 0, -2, -1);
  const double tiny = x.dtype() == DType::kF64 ? 2.3e-16 : 1.2e-7;
  const DistTensor change = where(eq(pivots, 0), tiny, zeros_like(pivots));
  const DistTensor u = add(lu, mul(by_row(change), unit_matrix(lu)));
  const DistTensor order =
      cast(eq(by_row(parts[1]), arange(lu.size(-1), lu.mesh())), lu.dtype());
  const DistTensor inverse = solved(u, solved(lu, order, false, true), true);
  const DistTensor det =
      mul(parts[2].detach(), prod(add(pivots, change), {-1}));
  return mul(turned(inverse), by_row(by_row(det)));
}

class DetOp : public MatrixOp {
 public:
  DetOp() : MatrixOp("det", "...m!n!->...", {.work = kFactorWork}) {}
  std::vector<Sample> samples() const override {
    return {{{{{5, 3, 3}}}, {}}, {{{{4, 4}}}, {}}};
  }
  void compute(Compute& c) const override {
    const Matrices x(c.in[0]);
    const DType t = x.t.dtype();
    const Factored f(c, x);
    const Tensor pivots = c.scratch({x.count}, t);
    c.run(kernels::Reduce{.kind = kernels::ReduceKind::kProd,
                          .type = t,
                          .shape = {x.count, x.n},
                          .in = f.lu.data(),
                          .strides = {x.n * x.n, x.n + 1},
                          .dims = 2,
                          .out = pivots.mutable_data()});
    row_binary(c, fn::index_of<fn::Mul>, pivots, f.parity, c.out[0]);
  }
  InputGradients gradient(const GradientCall& g) const override {
    return {mul(cofactors(g.inputs[0]), by_row(by_row(g.cotangents[0])))};
  }
};

// a, b -> x with a x = b
class SolveOp : public MatrixOp {
 public:
  explicit SolveOp(std::string name)
      : MatrixOp(
            std::move(name), "...m!n!,...mk->...nk | linear 1",
            {.work = kFactorWork, .saved_inputs = 1, .saves_outputs = true}) {}
  std::vector<Sample> samples() const override {
    const auto pair = [](Shape a, Shape b) {
      return Sample{{{.shape = a, .dominant = true}, {.shape = b}}, {}};
    };
    return {pair({3, 3}, {5, 3, 2}), pair({2, 4, 4}, {4, 3}),
            pair({5, 2, 2}, {5, 2, 3})};
  }
  void compute(Compute& c) const override {
    const Matrices a(c.in[0]), b(repeated(c.in[1], c.out[0], 2));
    const Factored f(c, a);
    // Each matrix is factored once, for all that it is broadcast to.
    Shape batch = c.in[0].shape();
    const Tensor lu = repeated(f.lu.reshape(batch), c.out[0], 2);
    batch.pop_back();
    const Tensor order = repeated(f.order.reshape(batch), c.out[0], 1);
    const Tensor most = c.scratch({1}, DType::kI64);
    most_of(c, f.failed, most);
    check_failed(c, most, {0}, [](int64_t row) {
      return fmt::format(
          "a matrix is singular: the pivot of row {} is 0; pass matrices that "
          "have an inverse",
          row);
    });
    kernels::SolveTriangular solve{.type = b.t.dtype(),
                                   .count = b.count,
                                   .n = b.m,
                                   .k = b.n,
                                   .t = lu.data(),
                                   .unit = true,
                                   .b = b.data(),
                                   .order = order.ptr<int64_t>(),
                                   .x = c.out[0].mutable_data()};
    c.run(solve);
    solve.upper = true;
    solve.unit = false;
    solve.b = solve.x;
    solve.order = nullptr;
    c.run(solve);
  }
  InputGradients gradient(const GradientCall& g) const override;
};
const Op& solve_op() {
  static const SolveOp op("solve");
  return op;
}
// The same operator, whose errors name inv().
const Op& inv_op() {
  static const SolveOp op("inv");
  return op;
}

InputGradients SolveOp::gradient(const GradientCall& g) const {
  const DistTensor& a = g.inputs[0];
  const DistTensor db = apply1(solve_op(), {turned(a), g.cotangents[0]});
  InputGradients all{{}, sum_to(db, g.decision->in[1]->shape())};
  if (g.needed[0])
    all[0] = sum_to(neg(matmul(db, turned(g.outputs[0]))), a.shape());
  return all;
}

}  // namespace

DistTensor solve(const DistTensor& a, const DistTensor& b, bool left) {
  check_square("solve", a);
  check_defined("solve", b);
  Shape rows = a.shape();
  rows.pop_back();
  const bool vectors = b.ndim() == 1 || b.shape() == rows;
  if (vectors) {
    DT_CHECK(left, "solve",
             "{} is a vector for each matrix of {}, but `left` is false; pass "
             "matrices",
             b.spec()->to_string(), a.spec()->to_string());
    return squeeze(apply1(solve_op(), {a, by_row(b)}), -1);
  }
  check_matrices("solve", b);
  if (!left) return turned(solve(turned(a), turned(b)));
  return apply1(solve_op(), {a, b});
}

DistTensor inv(const DistTensor& x) {
  check_square("inv", x);
  return apply1(inv_op(), {x, unit_matrix(x)});
}

DistTensor det(const DistTensor& x) {
  check_square("det", x);
  return apply1(op_of<DetOp>(), x);
}

SlogDet slogdet(const DistTensor& x) {
  check_square("slogdet", x);
  const auto parts = apply(op_of<LuOp>(), x);
  const DistTensor pivots = diagonal(parts[0], 0, -2, -1);
  return {mul(parts[2].detach(), prod(sign(pivots.detach()), {-1})),
          sum(log(abs(pivots)), {-1})};
}

static const OpFamily kFamily("linalg", [] {
  return OpList{&op_of<LuOp>(), &op_of<DetOp>(), &solve_op()};
});

}  // namespace dtensor
