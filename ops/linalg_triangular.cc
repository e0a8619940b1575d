// SPDX-License-Identifier: Apache-2.0
// Cholesky factors and triangular systems. The gradient of a factor is
// Murray's, "Differentiation of the Cholesky decomposition" (arXiv 1602.07527).
#include <algorithm>
#include <set>
#include <string>
#include <utility>
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
bool includes(const Interval& a, const Interval& b) {
  return a.lo <= b.lo && b.hi <= a.hi;
}
void scale(Compute& c, const Tensor& x, double by) {
  row_unary(c, fn::index_of<fn::MulScalar>, x, x, by);
}

// ---- Cholesky ----

// l [count, n, n] of x, both contiguous; `most` becomes 0, or 1 + the largest
// first row with a pivot that is not positive.
void factor(Compute& c, int64_t count, int64_t n, kernels::Triangle triangle,
            const Tensor& x, const Tensor& l, const Tensor& most) {
  const Tensor failed = c.scratch({count}, DType::kI64);
  c.run(kernels::Cholesky{.type = x.dtype(),
                          .count = count,
                          .n = n,
                          .triangle = triangle,
                          .x = x.data(),
                          .l = l.mutable_data(),
                          .failed = failed.mutable_ptr<int64_t>()});
  most_of(c, failed, most);
}

std::string not_positive(int64_t row) {
  return fmt::format(
      "a matrix is not positive definite: the pivot of row {} is not above 0; "
      "pass positive definite matrices, for example plus a multiple of eye()",
      row);
}

// Factors matrices whose rows or columns are split, or both, by blocks of
// columns from left to right. The bounds of all ranks' rows and columns cut the
// blocks, so a block of the diagonal lies on one rank. In the turn of a block:
// - this rank factors its square on the diagonal, and sends the factor to the
//   ranks that have rows of the block further down;
// - they solve for their rows of the block in l, and send row i to the ranks
//   that have elements (i, j) or (j, i) of the lower triangle right of the
//   block;
// - each rank subtracts the products of these rows from such elements.
class SplitCholesky {
 public:
  explicit SplitCholesky(Compute& c)
      : c_(c),
        spec_(c.decision.in[0]),
        axes_(c.axes_of('m') | c.axes_of('n')),
        rows_(rows_at(c.coord())),
        columns_(columns_at(c.coord())),
        x_(c.in[0]) {}

  void run(kernels::Triangle triangle) {
    const Tensor l = c_.out[0].reshape({x_.count, x_.m, x_.n});
    l.fill(0);
    load(triangle);
    std::set<int64_t> cuts;
    for (const int d : {spec_->ndim() - 2, spec_->ndim() - 1})
      for (const IntervalList& part : parts_of(spec_->dim(d), c_.mesh()))
        for (const Interval& i : part) cuts.insert({i.lo, i.hi});
    const std::vector<int64_t> at(cuts.begin(), cuts.end());
    if (at.empty()) return;
    const int64_t turns = std::ssize(at) - 1;
    const Tensor most = c_.scratch({turns}, DType::kI64);
    most.fill(0);
    for (int64_t i = 0; i < turns; ++i)
      turn({at[size_t(i)], at[size_t(i) + 1]}, l, most.slice(0, i, i + 1));
    check_failed(c_, most, at, not_positive);
  }

 private:
  Interval rows_at(const Coord& at) const {
    return range_of(spec_->dim(spec_->ndim() - 2), c_.mesh(), at);
  }
  Interval columns_at(const Coord& at) const {
    return range_of(spec_->dim(spec_->ndim() - 1), c_.mesh(), at);
  }
  // fetch() for a part with these rows and columns of each matrix.
  using RowsAndColumns = std::pair<IntervalList, IntervalList>;
  template <class Holds, class Wants>
  Tensor fetch(const Tensor& part, Holds&& holds, Wants&& wants) {
    const AxisMask depend[] = {c_.mesh().all_axes() & ~axes_, axes_, axes_};
    const auto region = [this](const Coord& at, const RowsAndColumns& of) {
      return region_at(*spec_, at, of.first, of.second);
    };
    return c_.fetch(
        part, axes_, [&](const Coord& at) { return region(at, holds(at)); },
        [&](const Coord& at) { return region(at, wants(at)); }, depend);
  }

  // Sets rest_ to -x, as far as x is read.
  void load(kernels::Triangle triangle) {
    const Tensor x = x_.t.reshape({x_.count, x_.m, x_.n});
    rest_ = c_.scratch(x.shape(), x.dtype());
    rest_.copy_from(x);
    if (triangle == kernels::Triangle::kLower) return scale(c_, rest_, -1);
    const auto own = [&](const Coord& at) {
      return RowsAndColumns{listed(rows_at(at)), listed(columns_at(at))};
    };
    const auto mirror = [&](const Coord& at) {
      return RowsAndColumns{listed(columns_at(at)), listed(rows_at(at))};
    };
    const Tensor other = fetch(x, own, mirror).transpose(1, 2);
    if (triangle == kernels::Triangle::kUpper) {
      rest_.copy_from(other);
      return scale(c_, rest_, -1);
    }
    row_binary(c_, fn::index_of<fn::Add>, rest_, other.to_contiguous(), rest_);
    scale(c_, rest_, -0.5);
  }

  // These rows and columns of `matrices`, which has this rank's.
  Tensor part(const Tensor& matrices, const Interval& rows,
              const Interval& columns) const {
    return matrices.slice(1, rows.lo - rows_.lo, rows.hi - rows_.lo)
        .slice(2, columns.lo - columns_.lo, columns.hi - columns_.lo);
  }
  // The rows below a block of a rank that has its columns.
  Interval below(const Interval& block, const Coord& at) const {
    const Interval rows = rows_at(at);
    return includes(columns_at(at), block)
               ? Interval{std::max(rows.lo, block.hi), rows.hi}
               : Interval{};
  }
  // The rows and the columns to the right of a block in which a rank has
  // elements of the lower triangle; empty if it has none.
  struct Later {
    Interval rows, columns;
    IntervalList both;
  };
  Later later(const Interval& block, const Coord& at) const {
    const Interval rows = rows_at(at), columns = columns_at(at);
    const int64_t first = std::max(block.hi, columns.lo);
    Later l{{std::max(first, rows.lo), rows.hi},
            {first, std::min(columns.hi, rows.hi)},
            {}};
    // (Without rows, it has no columns either: these end with its rows.)
    if (l.columns.size() <= 0) return {};
    if (l.columns.hi < l.rows.lo)
      l.both = {l.columns, l.rows};
    else
      l.both = {{std::min(l.columns.lo, l.rows.lo),
                 std::max(l.columns.hi, l.rows.hi)}};
    return l;
  }

  void turn(const Interval& block, const Tensor& l, const Tensor& most) {
    const DType t = x_.t.dtype();
    const int64_t n = block.size(), count = x_.count;
    const IntervalList all = listed(block);
    const auto on_diagonal = [&](const Coord& at) {
      return includes(rows_at(at), block) && includes(columns_at(at), block);
    };
    Tensor square = c_.scratch({count, 0, 0}, t);
    if (on_diagonal(c_.coord())) {
      const Tensor x = part(rest_, block, block).clone();
      scale(c_, x, -1);
      square = c_.scratch({count, n, n}, t);
      factor(c_, count, n, kernels::Triangle::kLower, x, square, most);
      part(l, block, block).copy_from(square);
    }
    if (block.hi == spec_->shape().back()) return;
    square = fetch(
        square,
        [&](const Coord& at) {
          return on_diagonal(at) ? RowsAndColumns{all, all} : RowsAndColumns();
        },
        [&](const Coord& at) {
          return below(block, at).size() > 0 ? RowsAndColumns{all, all}
                                             : RowsAndColumns();
        });
    const Interval rows = below(block, c_.coord());
    Tensor turned = c_.scratch({count, 0, 0}, t);  // the transposed rows of l
    if (rows.size() > 0) {
      turned = part(rest_, rows, block).transpose(1, 2).clone();
      scale(c_, turned, -1);
      c_.run(kernels::SolveTriangular{.type = t,
                                      .count = count,
                                      .n = n,
                                      .k = rows.size(),
                                      .t = square.data(),
                                      .b = turned.data(),
                                      .x = turned.mutable_data()});
      part(l, rows, block).copy_from(turned.transpose(1, 2));
    }
    turned = fetch(
        turned,
        [&](const Coord& at) {
          const Interval held = below(block, at);
          return held.size() > 0 ? RowsAndColumns{all, listed(held)}
                                 : RowsAndColumns();
        },
        [&](const Coord& at) {
          const IntervalList wanted = later(block, at).both;
          return wanted.empty() ? RowsAndColumns()
                                : RowsAndColumns{all, wanted};
        });
    const Later mine = later(block, c_.coord());
    if (mine.both.empty()) return;
    const auto got = [&](const Interval& i) {
      const bool second = i.lo >= mine.both[0].hi;
      const int64_t from =
          i.lo -
          (second ? mine.both[1].lo - mine.both[0].size() : mine.both[0].lo);
      return turned.slice(2, from, from + i.size());
    };
    multiply(c_, got(mine.rows).transpose(1, 2), got(mine.columns),
             part(rest_, mine.rows, mine.columns), true);
  }

  Compute& c_;
  const Spec* spec_;
  AxisMask axes_;
  Interval rows_, columns_;
  Matrices x_;
  Tensor rest_;  // minus what the products so far leave of x
};

// A turn has two exchanges. About half of the other ranks' elements is in the
// lower triangle.
constexpr OpWork kCholeskyWork{.flops_per_point = kFactorWork.flops_per_point,
                               .exchange = {'m', "*", 2, 0.5, 'n'}};

class CholeskyOp : public MatrixOp {
 public:
  CholeskyOp()
      : MatrixOp(
            "cholesky", "...m~n~->...m^n^",
            {.work = kCholeskyWork, .saved_inputs = 0, .saves_outputs = true}) {
  }
  std::vector<Sample> samples() const override {
    return {{{{.shape = {5, 3, 3}, .dominant = true}}, TriangleArgs{}},
            {{{.shape = {4, 4}, .dominant = true}}, TriangleArgs{}},
            {{{.shape = {2, 7, 7}, .dominant = true}}, TriangleArgs{}}};
  }
  void compute(Compute& c) const override {
    if (c.axes_of('m') | c.axes_of('n'))
      return SplitCholesky(c).run(triangle_of(c.attrs));
    const Matrices x(c.in[0]);
    const Tensor most = c.scratch({1}, DType::kI64);
    factor(c, x.count, x.n, triangle_of(c.attrs), x.t, c.out[0], most);
    check_failed(c, most, {0}, not_positive);
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

}  // namespace

DistTensor cholesky(const DistTensor& x, bool upper) {
  check_square("cholesky", x);
  const DistTensor l = apply1(op_of<CholeskyOp>(), x, triangle_args(upper));
  return upper ? turned(l) : l;
}

DistTensor solve_triangular(const DistTensor& a, const DistTensor& b,
                            bool upper, bool left, bool unitriangular) {
  check_square("solve_triangular", a);
  check_matrices("solve_triangular", b);
  if (!left)
    return turned(
        solve_triangular(turned(a), turned(b), !upper, true, unitriangular));
  return apply1(op_of<SolveTriangularOp>(), {a, b},
                SolveArgs{upper, unitriangular});
}

static const OpFamily kFamily("linalg_triangular", [] {
  return OpList{&op_of<CholeskyOp>(), &op_of<SolveTriangularOp>()};
});

}  // namespace dtensor
