// SPDX-License-Identifier: Apache-2.0
// Orthogonal factors. Their gradients are the formulas that torch documents, in
// torch.linalg.qr, eigh and svd.
#include <algorithm>
#include <vector>

#include "dtensor/local_part.h"
#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/linalg_op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/owned.h"

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

void factor(Compute& c, const Matrices& x, const Tensor& q, const Tensor& r) {
  const DType t = x.t.dtype();
  c.run(kernels::Qr{
      .type = t,
      .count = x.count,
      .m = x.m,
      .n = x.n,
      .x = x.data(),
      .q = q.mutable_data(),
      .r = r.mutable_data(),
      .work = c.scratch({x.count, 2 * x.m + 1, x.n}, t).mutable_data()});
}

// Factors tall matrices whose rows are split (Demmel, Grigori, Hoemmen and
// Langou, "Communication-optimal parallel and sequential QR and LU
// factorizations", SIAM Journal on Scientific Computing 34, 2012). The core of
// a matrix consists of its first n rows and, for each rank, of the factor R of
// the rank's other rows, or of those rows themselves if they are not more than
// n. It has the same r, s and v as the matrix, and each rank gets all of it.
// Householder's reflections take their pivots from the first n rows, so the
// signs in r do not depend on the split, either.
class Tall {
 public:
  // x is c.in[0], whose rows are the factor 'm'. Every rank of the mesh makes
  // one in every call of compute().
  explicit Tall(Compute& c) : core(c.in[0]), c_(c), axes_(c.axes_of('m')) {
    if (!axes_) return;
    const Mesh& mesh = c.mesh();
    const int64_t n = core.n;
    const Tensor x = core.t.reshape({core.count, core.m, n});
    const IntervalList first = listed({0, n});
    int64_t end = n + 1;  // the gap keeps the first n rows a range of their own
    for (const IntervalList& rows :
         parts_of(c.decision.in[0]->dim(c.in[0].ndim() - 2), mesh)) {
      Part part{rows, intersect(rows, first), subtract(rows, first)};
      part.factored = {end, end + std::min(length(part.rest), n)};
      end = part.factored.hi;
      parts_.push_back(std::move(part));
    }
    const Part& own = part_at(c.coord());
    const int64_t firsts = length(own.first), rest = length(own.rest);
    const Tensor sent =
        c.scratch({core.count, firsts + own.factored.size(), n}, x.dtype());
    const Tensor r = sent.slice(1, firsts, sent.shape()[1]);
    sent.slice(1, 0, firsts).copy_from(window(x, of(own.rows), of(own.first)));
    const Matrices others(window(x, of(own.rows), of(own.rest)));
    if (rest > n) {
      q_ = c.scratch({core.count, rest, n}, x.dtype());
      const Tensor square = c.scratch({core.count, n, n}, x.dtype());
      factor(c, others, q_, square);
      r.copy_from(square);
    } else {
      r.copy_from(others.t);
    }
    const AxisMask apart = mesh.all_axes() & ~axes_;
    core = Matrices(c.fetch(
        sent, axes_,
        [&](const Coord& at) {
          const Part& part = part_at(at);
          IntervalList rows = part.first;
          if (part.factored.size() > 0) rows.push_back(part.factored);
          return of(rows, at);
        },
        [&](const Coord& at) { return of(core_rows(), at); },
        std::vector<AxisMask>{apart, axes_, 0}));
  }
  // Memory for a factor with as many rows as the core, from which expand()
  // makes this rank's rows of the matrix's factor `out` [..., m, n].
  Tensor left(const Tensor& out) {
    return axes_ ? c_.scratch({core.count, core.m, core.n}, out.dtype()) : out;
  }
  void expand(const Tensor& left, const Tensor& out) {
    if (!axes_) return;
    const Part& own = part_at(c_.coord());
    const Tensor to = out.reshape({core.count, length(own.rows), core.n});
    copy_indices(of(own.first), to, of(own.rows), left, of(core_rows()));
    Tensor rest = left.slice(1, own.factored.lo - 1, own.factored.hi - 1);
    if (q_.defined()) {
      const Tensor product = c_.scratch(q_.shape(), out.dtype());
      multiply(c_, q_, rest, product);
      rest = product;
    }
    copy_indices(of(own.rest), to, of(own.rows), rest, of(own.rest));
  }

  Matrices core;

 private:
  // The rows of one rank; `factored` are the rows of the core that it makes.
  // The core's row n does not exist.
  struct Part {
    IntervalList rows, first, rest;
    Interval factored = {};
  };
  IntervalList core_rows() const {
    IntervalList rows = listed({0, core.n});
    const int64_t end = parts_.back().factored.hi;
    if (end > core.n + 1) rows.push_back({core.n + 1, end});
    return rows;
  }
  const Part& part_at(const Coord& at) const {
    size_t i = 0;
    for (int a = 0; a < c_.mesh().num_axes(); ++a)
      if (axes_ >> a & 1)
        i = i * static_cast<size_t>(c_.mesh().axis_size(a)) +
            static_cast<size_t>(at[a]);
    return parts_[i];
  }
  // These rows of all matrices of this rank, or of the rank at a coordinate.
  Region of(const IntervalList& rows) const { return of(rows, c_.coord()); }
  Region of(const IntervalList& rows, const Coord& at) const {
    return region_at(*c_.decision.in[0], at, rows, listed({0, core.n}));
  }

  Compute& c_;
  AxisMask axes_;
  std::vector<Part> parts_;  // in the order of Mesh::group()
  Tensor q_;                 // the factor Q of the rank's other rows
};
// Each rank receives a matrix [k, n] from every other one.
constexpr OpWork kTallWork{.flops_per_point = kFactorWork.flops_per_point,
                           .exchange = {'m', "", 1}};

// x [m, n], with m >= n -> q, r
class QrOp : public MatrixOp {
 public:
  QrOp()
      : MatrixOp("qr", "...m~n!->...mn,...k!n",
                 {.work = kTallWork, .saved_inputs = 0, .saves_outputs = true},
                 true) {}
  std::vector<Sample> samples() const override {
    // On three ranks, each has more rows than columns in the second one.
    return {{{{{5, 4, 3}}}, {}},
            {{{{11, 2}}}, {}},
            {{{{3, 3}}}, {}},
            {{{{2, 3, 4, 1}}}, {}}};
  }
  void compute(Compute& c) const override {
    Tall x(c);
    const Tensor q = x.left(c.out[0]);
    factor(c, x.core, q, c.out[1]);
    x.expand(q, c.out[0]);
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
      : MatrixOp("svd", "...m~n!->...n,...mn,...k!n",
                 {.work = kTallWork, .saved_inputs = 0, .saves_outputs = true},
                 true) {}
  std::vector<Sample> samples() const override {
    // On three ranks, each has more rows than columns in the second one.
    return {{{{{5, 4, 3}}}, {}},
            {{{{11, 2}}}, {}},
            {{{{3, 3}}}, {}},
            {{{{2, 3, 4, 1}}}, {}}};
  }
  void compute(Compute& c) const override {
    Tall tall(c);
    const Matrices& x = tall.core;
    const DType t = x.t.dtype();
    const Tensor u = tall.left(c.out[1]);
    c.run(kernels::Svd{
        .type = t,
        .count = x.count,
        .m = x.m,
        .n = x.n,
        .x = x.data(),
        .s = c.out[0].mutable_data(),
        .u = u.mutable_data(),
        .v = c.out[2].mutable_data(),
        .work = c.scratch({x.count, x.m + x.n + 1, x.n}, t).mutable_data()});
    tall.expand(u, c.out[1]);
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

}  // namespace

Qr qr(const DistTensor& x) {
  check_matrices("qr", x);
  const int64_t m = x.size(-2), n = x.size(-1);
  if (m >= n) {
    const auto parts = apply(op_of<QrOp>(), x);
    return {parts[0], parts[1]};
  }
  // The first m columns determine q, and r has the others in its coordinates.
  const auto parts = apply(op_of<QrOp>(), narrow(x, -1, 0, m));
  const DistTensor rest = matmul(turned(parts[0]), narrow(x, -1, m, n - m));
  return {parts[0], cat({parts[1], rest}, -1)};
}

Eigh eigh(const DistTensor& x, bool upper) {
  check_square("eigh", x);
  const auto parts = apply(op_of<EighOp>(), x, triangle_args(upper));
  return {parts[0], parts[1]};
}

DistTensor eigvalsh(const DistTensor& x, bool upper) {
  check_square("eigvalsh", x);
  return apply(op_of<EighOp>(), x, triangle_args(upper))[0];
}

Svd svd(const DistTensor& x) {
  check_matrices("svd", x);
  const bool wide = x.size(-2) < x.size(-1);
  const auto parts = apply(op_of<SvdOp>(), wide ? turned(x) : x);
  if (wide) return {parts[2], parts[0], turned(parts[1])};
  return {parts[1], parts[0], turned(parts[2])};
}

DistTensor svdvals(const DistTensor& x) {
  check_matrices("svdvals", x);
  return svd(x).s;
}

static const OpFamily kFamily("linalg_orthogonal", [] {
  return OpList{&op_of<QrOp>(), &op_of<EighOp>(), &op_of<SvdOp>()};
});

}  // namespace dtensor
