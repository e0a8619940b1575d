// SPDX-License-Identifier: Apache-2.0
// Orthogonal factors. Their gradients are the formulas that torch documents, in
// torch.linalg.qr, eigh and svd.
#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/linalg_op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"

namespace dtensor {
namespace {

// The differences v[j] - v[i] as element (i, j), and 1 on the diagonal.
DistTensor gaps(const DistTensor& v) {
  return add(sub(by_column(v), by_row(v)), unit_matrix(v));
}

// a + b, where either may be undefined.
DistTensor plus(const DistTensor& a, const DistTensor& b) {
  return !a.defined() ? b : !b.defined() ? a : add(a, b);
}

// x [m, n], with m >= n -> q, r
class QrOp : public MatrixOp {
 public:
  QrOp()
      : MatrixOp(
            "qr", "...m!n!->...mn,...k!n",
            {.work = kFactorWork, .saved_inputs = 0, .saves_outputs = true},
            true) {}
  std::vector<Sample> samples() const override {
    return {{{{{5, 4, 3}}}, {}}, {{{{3, 3}}}, {}}, {{{{2, 3, 4, 1}}}, {}}};
  }
  void compute(Compute& c) const override {
    const Matrices x(c.in[0]);
    const DType t = x.t.dtype();
    c.run(kernels::Qr{
        .type = t,
        .count = x.count,
        .m = x.m,
        .n = x.n,
        .x = x.data(),
        .q = c.out[0].mutable_data(),
        .r = c.out[1].mutable_data(),
        .work = c.scratch({x.count, 2 * x.m + 1, x.n}, t).mutable_data()});
  }
  // dx = (dq + q s) r^-T, where s is the symmetric matrix with the upper
  // triangle of dr r^T - q^T dq.
  InputGradients gradient(const GradientCall& g) const override {
    const DistTensor &q = g.outputs[0], &r = g.outputs[1],
                     &dq = g.cotangents[0], &dr = g.cotangents[1];
    DistTensor inner;
    if (dr.defined()) inner = matmul(dr, turned(r));
    if (dq.defined()) inner = plus(inner, neg(matmul(turned(q), dq)));
    const DistTensor dy = plus(dq, matmul(q, mirrored(triu(inner))));
    return {divided(dy, turned(r), false)};
  }
};

// x, symmetric -> eigenvalues, eigenvectors
class EighOp : public MatrixOp {
 public:
  EighOp()
      : MatrixOp(
            "eigh", "...m!n!->...n,...mn",
            {.work = kFactorWork, .saved_inputs = 0, .saves_outputs = true}) {}
  std::vector<Sample> samples() const override {
    return {{{{{5, 3, 3}}}, TriangleArgs{}},
            {{{{4, 4}}}, TriangleArgs{}},
            {{{{2, 3, 1, 1}}}, TriangleArgs{}}};
  }
  void compute(Compute& c) const override {
    const Matrices x(c.in[0]);
    const DType t = x.t.dtype();
    c.run(kernels::Eigh{
        .type = t,
        .count = x.count,
        .n = x.n,
        .triangle = triangle_of(c.attrs),
        .x = x.data(),
        .values = c.out[0].mutable_data(),
        .vectors = c.out[1].mutable_data(),
        .work = c.scratch({x.count, 2 * x.n, x.n}, t).mutable_data()});
  }
  // dx = v (k / gaps + diag(dw)) v^T, where k is the antisymmetric part of
  // v^T dv.
  InputGradients gradient(const GradientCall& g) const override {
    const DistTensor &w = g.outputs[0], &v = g.outputs[1],
                     &dw = g.cotangents[0], &dv = g.cotangents[1];
    DistTensor inner;
    if (dw.defined()) inner = mul(v, by_column(dw));
    if (dv.defined()) {
      const DistTensor both = matmul(turned(v), dv);
      const DistTensor k = mul(sub(both, turned(both)), 0.5);
      inner = plus(inner, matmul(v, div(k, gaps(w))));
    }
    return {matmul(inner, turned(v))};
  }
};

// x [m, n], with m >= n -> s, u, v
class SvdOp : public MatrixOp {
 public:
  SvdOp()
      : MatrixOp(
            "svd", "...m!n!->...n,...mn,...k!n",
            {.work = kFactorWork, .saved_inputs = 0, .saves_outputs = true},
            true) {}
  std::vector<Sample> samples() const override {
    return {{{{{5, 4, 3}}}, {}}, {{{{3, 3}}}, {}}, {{{{2, 3, 4, 1}}}, {}}};
  }
  void compute(Compute& c) const override {
    const Matrices x(c.in[0]);
    const DType t = x.t.dtype();
    c.run(kernels::Svd{
        .type = t,
        .count = x.count,
        .m = x.m,
        .n = x.n,
        .x = x.data(),
        .s = c.out[0].mutable_data(),
        .u = c.out[1].mutable_data(),
        .v = c.out[2].mutable_data(),
        .work = c.scratch({x.count, x.m + x.n + 1, x.n}, t).mutable_data()});
  }
  // dx = u (skew(u^T du) / e S + S skew(v^T dv) / e + diag(ds)) v^T
  //      + (I - u u^T) du S^-1 v^T,
  // where skew(a) = a - a^T, e has the gaps of s^2, and S = diag(s).
  InputGradients gradient(const GradientCall& g) const override {
    const DistTensor &s = g.outputs[0], &u = g.outputs[1], &v = g.outputs[2],
                     &ds = g.cotangents[0], &du = g.cotangents[1],
                     &dv = g.cotangents[2];
    const auto rotation = [&](const DistTensor& a, const DistTensor& da) {
      const DistTensor both = matmul(turned(a), da);
      return div(sub(both, turned(both)), gaps(square(s)));
    };
    DistTensor left;  // dx = left v^T
    if (ds.defined()) left = mul(u, by_column(ds));
    if (du.defined()) {
      left = plus(left, matmul(u, mul(rotation(u, du), by_column(s))));
      if (u.size(-2) > u.size(-1))
        left = plus(
            left, div(sub(du, matmul(u, matmul(turned(u), du))), by_column(s)));
    }
    if (dv.defined())
      left = plus(left, matmul(u, mul(by_row(s), rotation(v, dv))));
    return {matmul(left, turned(v))};
  }
};

const Op& qr_op() {
  static const QrOp op;
  return op;
}
const Op& eigh_op() {
  static const EighOp op;
  return op;
}
const Op& svd_op() {
  static const SvdOp op;
  return op;
}

}  // namespace

Qr qr(const DistTensor& x) {
  check_matrices("qr", x);
  const int64_t m = x.size(-2), n = x.size(-1);
  if (m >= n) {
    const auto parts = apply(qr_op(), x);
    return {parts[0], parts[1]};
  }
  // The first m columns determine q, and r has the others in its coordinates.
  const auto parts = apply(qr_op(), narrow(x, -1, 0, m));
  const DistTensor rest = matmul(turned(parts[0]), narrow(x, -1, m, n - m));
  return {parts[0], cat({parts[1], rest}, -1)};
}

Eigh eigh(const DistTensor& x, bool upper) {
  check_square("eigh", x);
  const auto parts = apply(eigh_op(), x, triangle_args(upper));
  return {parts[0], parts[1]};
}

DistTensor eigvalsh(const DistTensor& x, bool upper) {
  check_square("eigvalsh", x);
  return apply(eigh_op(), x, triangle_args(upper))[0];
}

Svd svd(const DistTensor& x) {
  check_matrices("svd", x);
  const bool wide = x.size(-2) < x.size(-1);
  const auto parts = apply(svd_op(), wide ? turned(x) : x);
  if (wide) return {parts[2], parts[0], turned(parts[1])};
  return {parts[1], parts[0], turned(parts[2])};
}

DistTensor svdvals(const DistTensor& x) {
  check_matrices("svdvals", x);
  return svd(x).s;
}

static const OpFamily kFamily("linalg_orthogonal", [] {
  return OpList{&qr_op(), &eigh_op(), &svd_op()};
});

}  // namespace dtensor
