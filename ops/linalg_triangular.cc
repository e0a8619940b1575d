// SPDX-License-Identifier: Apache-2.0
// Cholesky factors and triangular systems. The gradient of a factor is
// Murray's, "Differentiation of the Cholesky decomposition" (arXiv 1602.07527).
#include <algorithm>
#include <vector>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/linalg_op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/rows.h"
#include "dtensor/ops/statistics.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/owned.h"

namespace dtensor {
namespace {

// The indices of a dimension that the rank at a coordinate has. REQUIRES: one
// range, as with the mark "^" in a rule.
Interval range_of(const Dim& dim, const Mesh& mesh, const Coord& at) {
  IntervalList list;
  dim.intervals(mesh, at, list);
  return list.empty() ? Interval{} : list[0];
}
void scale(Compute& c, const Tensor& x, double by) {
  row_unary(c, fn::index_of<fn::MulScalar>, x, x, by);
}

// ---- Cholesky ----

class CholeskyOp : public MatrixOp {
 public:
  CholeskyOp()
      : MatrixOp(
            "cholesky", "...m!n!->...mn",
            {.work = kFactorWork, .saved_inputs = 0, .saves_outputs = true}) {}
  std::vector<Sample> samples() const override {
    return {{{{.shape = {5, 3, 3}, .dominant = true}}, TriangleArgs{}},
            {{{.shape = {4, 4}, .dominant = true}}, TriangleArgs{}}};
  }
  void compute(Compute& c) const override {
    const Matrices x(c.in[0]);
    const Tensor failed = c.scratch({x.count}, DType::kI64);
    c.run(kernels::Cholesky{.type = x.t.dtype(),
                            .count = x.count,
                            .n = x.n,
                            .triangle = triangle_of(c.attrs),
                            .x = x.data(),
                            .l = c.out[0].mutable_data(),
                            .failed = failed.mutable_ptr<int64_t>()});
    check_failed(c, failed, [](int64_t row) {
      return fmt::format(
          "a matrix is not positive definite: the pivot of row {} is not above "
          "0; pass positive definite matrices, for example plus a multiple of "
          "eye()",
          row);
    });
  }
  // dx = l^-T (phi + phi^T) / 2 l^-1, where phi is the lower triangle of
  // l^T dl with half of its diagonal.
  InputGradients gradient(const GradientCall& g) const override {
    const DistTensor &l = g.outputs[0], lt = turned(l);
    const DistTensor both = mirrored(turned(tril(matmul(lt, g.cotangents[0]))));
    return {mul(divided(solved(lt, both, true), l, false), 0.5)};
  }
};

// ---- Triangular systems ----

struct SolveArgs {
  static constexpr Fields kFields = {"upper", "unit"};
  bool upper, unit;
};

// Substitution by blocks of rows, for c.in[0] whose rows are split. The ranks
// take turns in the order of their rows: each solves for its rows of x, and
// sends them to the ranks whose turns are later, which subtract their product.
// t has this rank's rows of the triangles [count, m, n], and x [count, m, k]
// those of b.
void solve_in_turns(Compute& c, const SolveArgs& args, const Tensor& t,
                    const Tensor& x) {
  const AxisMask axes = c.axes_of('m'), apart = c.mesh().all_axes() & ~axes;
  const Spec& spec = *c.decision.out[0];
  const Dim& dim = spec.dim(spec.ndim() - 2);
  const auto rows_at = [&](const Coord& at) {
    return range_of(dim, c.mesh(), at);
  };
  const auto is_later = [&](const Interval& rows, const Interval& than) {
    return rows.size() > 0 &&
           (args.upper ? rows.hi <= than.lo : than.hi <= rows.lo);
  };
  const auto region = [&](const Coord& at, bool has, const Interval& rows) {
    return region_at(spec, at, has ? listed(rows) : IntervalList{},
                     listed({0, spec.local_shape(at).back()}));
  };
  std::vector<Interval> turns;
  for (const IntervalList& part : parts_of(dim, c.mesh()))
    turns.insert(turns.end(), part.begin(), part.end());
  std::sort(
      turns.begin(), turns.end(),
      [&](const Interval& a, const Interval& b) { return is_later(b, a); });
  const Interval own = rows_at(c.coord());
  const int64_t count = x.shape()[0], k = x.shape()[2];
  scale(c, x, -1);  // so that products add up
  for (const Interval& turn : turns) {
    Tensor sent = c.scratch({count, 0, k}, x.dtype());
    if (own == turn) {
      scale(c, x, -1);
      const Tensor square = t.slice(2, turn.lo, turn.hi).to_contiguous();
      c.run(kernels::SolveTriangular{.type = x.dtype(),
                                     .count = count,
                                     .n = turn.size(),
                                     .k = k,
                                     .t = square.data(),
                                     .upper = args.upper,
                                     .unit = args.unit,
                                     .b = x.data(),
                                     .x = x.mutable_data()});
      sent = x;
    }
    if (turn == turns.back()) return;
    const Tensor solved = c.fetch(
        sent, axes,
        [&](const Coord& at) { return region(at, rows_at(at) == turn, turn); },
        [&](const Coord& at) {
          return region(at, is_later(rows_at(at), turn), turn);
        },
        std::vector<AxisMask>{apart, axes, apart});
    if (is_later(own, turn))
      multiply(c, t.slice(2, turn.lo, turn.hi), solved, x, true);
  }
}

class SolveTriangularOp : public MatrixOp {
 public:
  SolveTriangularOp()
      : MatrixOp("solve_triangular", "...m~n!,...m^k->...mk | linear 1",
                 {.work = {2, {'m', "mk.", 1, 1.0}},
                  .saved_inputs = 1,
                  .saves_outputs = true}) {}
  std::vector<Sample> samples() const override {
    const auto pair = [](Shape t, Shape b, bool upper, bool unit) {
      return Sample{{{.shape = t, .dominant = true}, {.shape = b}},
                    SolveArgs{upper, unit}};
    };
    return {pair({3, 3}, {5, 3, 2}, false, false),
            pair({2, 4, 4}, {4, 3}, true, false),
            pair({5, 2, 2}, {5, 2, 3}, true, true),
            pair({7, 7}, {2, 7, 2}, true, false)};
  }
  void compute(Compute& c) const override {
    const SolveArgs& args = c.attrs.as<SolveArgs>();
    const Tensor t = repeated(c.in[0], c.out[0], 2);
    const Matrices b(repeated(c.in[1], c.out[0], 2));
    if (c.axes_of('m')) {
      const Tensor x = c.out[0].reshape({b.count, b.m, b.n});
      x.copy_from(b.t.reshape(x.shape()));
      return solve_in_turns(c, args,
                            t.reshape({b.count, b.m, t.shape().back()}), x);
    }
    c.run(kernels::SolveTriangular{.type = b.t.dtype(),
                                   .count = b.count,
                                   .n = b.m,
                                   .k = b.n,
                                   .t = t.data(),
                                   .upper = args.upper,
                                   .unit = args.unit,
                                   .b = b.data(),
                                   .x = c.out[0].mutable_data()});
  }
  InputGradients gradient(const GradientCall& g) const override {
    const auto [upper, unit] = g.attrs.as<SolveArgs>();
    const DistTensor& t = g.inputs[0];
    const DistTensor db = solved(turned(t), g.cotangents[0], !upper, unit);
    const Shape& of_b = g.decision->in[1]->shape();
    InputGradients all{{}, sum_to(db, of_b)};
    if (!g.needed[0]) return all;
    const DistTensor dt =
        sum_to(neg(matmul(db, turned(g.outputs[0]))), t.shape());
    all[0] = upper ? triu(dt, unit) : tril(dt, unit ? -1 : 0);
    return all;
  }
};

const Op& cholesky_op() {
  static const CholeskyOp op;
  return op;
}
const Op& solve_triangular_op() {
  static const SolveTriangularOp op;
  return op;
}
}  // namespace

DistTensor cholesky(const DistTensor& x, bool upper) {
  check_square("cholesky", x);
  const DistTensor l = apply1(cholesky_op(), x, triangle_args(upper));
  return upper ? turned(l) : l;
}

DistTensor solve_triangular(const DistTensor& a, const DistTensor& b,
                            bool upper, bool left, bool unitriangular) {
  check_square("solve_triangular", a);
  check_matrices("solve_triangular", b);
  if (!left)
    return turned(
        solve_triangular(turned(a), turned(b), !upper, true, unitriangular));
  return apply1(solve_triangular_op(), {a, b}, SolveArgs{upper, unitriangular});
}

static const OpFamily kFamily("linalg_triangular", [] {
  return OpList{&cholesky_op(), &solve_triangular_op()};
});

}  // namespace dtensor
