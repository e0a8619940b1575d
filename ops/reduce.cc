// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/reduce.h"

#include <algorithm>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/gather_op.h"
#include "dtensor/ops/kernels/operands.h"
#include "dtensor/ops/kernels/reduce.h"
#include "dtensor/ops/kernels/rows.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/rows.h"
#include "dtensor/ops/vectors.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"

namespace dtensor {
namespace {

using Kind = kernels::ReduceKind;

DistTensor last_place(const DistTensor&, const DistTensor&, int dim);
DistTensor product_gradient(const DistTensor& x, const DistTensor& y,
                            const DistTensor& dy, int dim);

struct ScanArgs {
  static constexpr Fields kFields = {"dim", "reverse"};
  int64_t dim;
  bool reverse;  // from the end
};

// For a scan along n, which axes split. `total` [1, numbers] is about this
// rank's part, with `per_row` numbers for each row. Returns the totals of the
// parts before this one (after it, if `reverse`), as [parts, numbers].
Tensor totals_before(Compute& c, const Tensor& total, int64_t per_row,
                     bool reverse) {
  const AxisMask axes = c.axes_of('n');
  // The region of all totals that consists of the parts [lo, hi) and the rows
  // of the rank at `at`, which may have no rows.
  const auto totals_of = [&](const Coord& at, int64_t lo, int64_t hi) {
    const int64_t numbers = per_row * c.rows_at('n', at);
    const auto range = [](int64_t from, int64_t to) {
      return from < to ? IntervalList{{from, to}} : IntervalList{};
    };
    return Region{range(lo, hi), range(0, numbers)};
  };
  return c.fetch(
      total, axes,
      [&](const Coord& at) {
        const int64_t i = c.place_of('n', at);
        return totals_of(at, i, i + 1);
      },
      [&](const Coord& at) {
        const int64_t i = c.place_of('n', at);
        return reverse ? totals_of(at, i + 1, c.mesh().size_of(axes))
                       : totals_of(at, 0, i);
      });
}

// cumsum, cummax, cummin and cumprod, from the first or from the last index on.
// If the dimension is split, every rank sums its part, receives the sums of the
// parts that precede its own (one number per row and rank), and starts from
// their sum. Maxima, minima and products are computed alike.
class Scan : public Op {
 public:
  explicit Scan(Kind kind)
      : Op(std::string("cum") + kNames[static_cast<size_t>(kind)],
           {.work = {1, {'n', "", 1}},
            .saved_inputs = kind == Kind::kSum ? 0 : OpFacts::kAll,
            .saves_outputs = kind != Kind::kSum,
            .sums = kind == Kind::kMax || kind == Kind::kMin
                        ? OpFacts::Sums::kInOrder
                        : OpFacts::Sums::kInside}),
        kind_(kind) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    const int64_t dim = attrs.as<ScanArgs>().dim;
    return BoundRule(
        along(std::string("...n~->...n^") + kNotes[static_cast<size_t>(kind_)],
              shapes[0].size(), dim, name()),
        shapes, name());
  }
  std::vector<Sample> samples() const override {
    SampleInput rows{{3, 7}};
    rows.zeros = kind_ == Kind::kProd;
    return {{{{{5, 3}}}, ScanArgs{0, false}, true},
            {{rows}, ScanArgs{1, sums()}, true},
            {{{{2, 5, 3}}}, ScanArgs{1, false}, true}};
  }

  void compute(Compute& c) const override {
    const int64_t dim = c.attrs.as<ScanArgs>().dim;
    const bool reverse = c.attrs.as<ScanArgs>().reverse;
    const DType t = c.in[0].dtype(), sum = kernels::scan_type_of(t);
    const Rows x(with_last(c.in[0], dim));
    kernels::ScanRows scan{.kind = kind_, .x = x, .reverse = reverse};
    Tensor carry;
    if (c.axes_of('n')) {
      const Tensor total = c.scratch({1, x.rows}, sum);
      scan.total = total.mutable_data();
      c.run(scan);
      const Tensor others = totals_before(c, total, 1, reverse);
      carry = c.scratch({x.rows}, sum);
      c.run(kernels::Reduce{.kind = kind_,
                            .type = sum,
                            .shape = others.shape(),
                            .in = others.data(),
                            .strides = others.strides(),
                            .dims = 1,
                            .out = carry.mutable_data()});
      scan.carry = carry.data();
      scan.total = nullptr;
    }
    into_rows(c, c.out[0], x, dim, [&](const Tensor& y) {
      scan.out = y.mutable_data();
      c.run(scan);
    });
  }

  InputGradients gradient(const GradientCall& g) const override {
    ScanArgs args = g.attrs.as<ScanArgs>();
    const int dim = static_cast<int>(args.dim);
    if (kind_ == Kind::kProd)
      return {
          product_gradient(g.inputs[0], g.outputs[0], g.cotangents[0], dim)};
    if (!sums()) {
      const DistTensor at =
          to_last(last_place(g.inputs[0], g.outputs[0], dim), dim);
      return {to_last(
          put_in_rows(to_last(g.cotangents[0], dim), at, at.size(-1)), dim)};
    }
    args.reverse = !args.reverse;
    const Assignment a = inherited(g);
    return {apply1(*this, g.cotangents, args, &a)};
  }

 private:
  static constexpr const char* kNames[] = {"sum", "max", "min", "prod"};
  static constexpr const char* kNotes[] = {" | linear 0", " | max 0",
                                           " | min 0", ""};
  bool sums() const { return kind_ == Kind::kSum; }

  Kind kind_;
};

const Op& scan_op(Kind kind) {
  static const Scan ops[] = {Scan(Kind::kSum), Scan(Kind::kMax),
                             Scan(Kind::kMin), Scan(Kind::kProd)};
  return ops[static_cast<size_t>(kind)];
}

DistTensor scan(Kind kind, const DistTensor& x, int dim, bool reverse = false) {
  return apply1(scan_op(kind), x, ScanArgs{dim, reverse});
}

// For y = cummax(x) or cummin(x): for each index i, the last j <= i at which
// x[j] equals y[j] or is NaN. That element gave y[i].
DistTensor last_place(const DistTensor& given, const DistTensor& extreme,
                      int dim) {
  const DistTensor x = given.detach(), y = extreme.detach();
  const int64_t n = x.size(dim);
  Layout layout = Layout::replicated({n});
  layout.dims[0] = x.layout().dims[static_cast<size_t>(dim)];
  const DistTensor i =
      along_dim(arange(n, x.mesh(), layout, DType::kI64), x.ndim(), dim);
  const DistTensor taken =
      is_float(x.dtype()) ? logical_or(eq(x, y), isnan(x)) : eq(x, y);
  return scan(Kind::kMax, where(taken, i, -1), dim);
}

// product_gradient() without a division, so that its result can be
// differentiated even if x has zeros: dx[i] = y[i - 1] * s[i], where s[i] is
// the sum of dy[j] * x[i + 1] * ... * x[j] over j >= i. Each step of the loop
// doubles the number of terms in s. If a product of some consecutive elements
// of x overflows, the result may be wrong, even if y does not overflow.
DistTensor differentiable_product_gradient(const DistTensor& x,
                                           const DistTensor& y,
                                           const DistTensor& dy, int dim) {
  // t[i + by], and `value` beyond the ends.
  const auto moved = [&](const DistTensor& t, int64_t by, double value) {
    std::vector<int64_t> widths(static_cast<size_t>(2 * (t.ndim() - dim)));
    widths.end()[-2] = -by;
    widths.end()[-1] = by;
    return pad(t, widths, value);
  };
  DistTensor sums = dy, factor = moved(x, 1, 0);
  for (int64_t n = 1; n < x.size(dim); n *= 2) {
    sums = sums + factor * moved(sums, n, 0);
    factor = factor * moved(factor, n, 0);
  }
  return moved(y, -1, 1) * sums;
}

// The gradient of y = cumprod(x). dx[i] is the sum of dy[j] * p[j] over j >= i,
// where p[j] is the product of all x[k] with k <= j except x[i]. If i lies
// before the first zero of x, p[j] = y[j] / x[i]. At the first zero, p[j] is
// the running product without this zero. After it, p[j] = 0.
DistTensor product_gradient(const DistTensor& x, const DistTensor& y,
                            const DistTensor& dy, int dim) {
  if (RankContext::current().grad_enabled)
    return differentiable_product_gradient(x, y, dy, dim);
  const DistTensor zero = eq(x.detach(), 0);
  const DistTensor zeros = scan(Kind::kSum, cast(zero, DType::kI64), dim);
  const DistTensor first = logical_and(zero, eq(zeros, 1));
  const DistTensor without = scan(Kind::kProd, where(first, 1, x), dim);
  const auto rest = [&](const DistTensor& p) {
    return scan(Kind::kSum, dy * p, dim, true);
  };
  return where(eq(zeros, 0), rest(y) / where(zero, 1, x),
               where(first, rest(without), 0));
}

const Op& exponential_scan(bool log);

// Running sums of exponentials along one dimension. With s(w, x)[i] the sum of
// w[j] exp(x[j]) over j <= i (with `reverse`, over j >= i):
//   logcumsumexp(x)      = log(s(1, x))
//   cumsum_exp(w, x, by) = exp(by) s(w, x)
// The second one is the gradient of both. The sums are kept as (m, t), which
// stands for t exp(m), so that no exponential overflows. If the dimension is
// split, the ranks exchange one such pair per row and rank, in one message. The
// price has half of its bytes (OpWork::exchange).
class ExponentialScan : public Op {
 public:
  explicit ExponentialScan(bool log)
      : Op(log ? "logcumsumexp" : "cumsum_exp",
           {.work = {20, {'n', "", 1}},
            .saves_outputs = true,
            .sums = OpFacts::Sums::kInside}),
        log_(log) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    return BoundRule(
        along(log_ ? "...n~->...n^" : "...n~,...n,...n->...n^ | linear 0",
              shapes[0].size(), attrs.as<ScanArgs>().dim, name()),
        shapes, name());
  }
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    check_one_type(name(), in);
    return {in[0]};
  }
  std::vector<Sample> samples() const override {
    std::vector<Sample> list;
    for (const auto& [shape, dim, reverse] :
         std::vector<std::tuple<Shape, int64_t, bool>>{
             {{5, 3}, 0, false}, {{3, 7}, 1, true}, {{2, 5, 3}, 1, false}})
      list.push_back(
          {std::vector<SampleInput>(log_ ? 1 : 3, SampleInput{shape}),
           ScanArgs{dim, reverse}, true});
    return list;
  }

  void compute(Compute& c) const override {
    const auto& args = c.attrs.as<ScanArgs>();
    std::vector<Rows> in;
    for (size_t i = 0; i < c.in.size(); ++i)
      in.emplace_back(with_last(c.in[i], args.dim));
    const Rows& x = in[log_ ? 0 : 1];
    kernels::ScanExp scan{.x = x, .reverse = args.reverse};
    if (!log_) scan.weight = in[0], scan.scale = in[2];
    Tensor carry;
    if (c.axes_of('n')) {
      const Tensor total = c.scratch({1, 2 * x.rows}, DType::kF64);
      scan.total = total.mutable_data();
      c.run(scan);
      const Tensor others = totals_before(c, total, 2, args.reverse);
      carry = sum_of_parts(c, others, x.rows);
      scan.carry = carry.data();
      scan.total = nullptr;
    }
    into_rows(c, c.out[0], x, args.dim, [&](const Tensor& y) {
      scan.out = y.mutable_data();
      c.run(scan);
    });
  }

  InputGradients gradient(const GradientCall& g) const override {
    ScanArgs args = g.attrs.as<ScanArgs>();
    args.reverse = !args.reverse;
    const Assignment a = inherited(g);
    const DistTensor &y = g.outputs[0], &dy = g.cotangents[0];
    const auto back = [&](const DistTensor& x, const DistTensor& by) {
      return apply1(exponential_scan(false), {dy, x, by}, args, &a);
    };
    if (log_) return {back(neg(y), g.inputs[0])};
    const DistTensor &w = g.inputs[0], &x = g.inputs[1], &by = g.inputs[2];
    const DistTensor dw = back(by, x);
    return {dw, mul(w, dw), mul(y, dy)};
  }

 private:
  // The sums of the pairs [parts, rows, 2] over the parts: a scan of each row
  // of which only the total counts.
  static Tensor sum_of_parts(Compute& c, const Tensor& pairs, int64_t rows) {
    const int64_t parts = pairs.shape()[0];
    const Tensor both =
        pairs.reshape({parts, rows, 2}).transpose(0, 2).to_contiguous();
    const auto matrix = [&](int64_t i) {
      return kernels::Matrix{DType::kF64, rows, parts,
                             both.ptr<double>() + i * rows * parts, parts};
    };
    const Tensor sum = c.scratch({rows, 2}, DType::kF64);
    c.run(kernels::ScanExp{
        .x = matrix(0), .weight = matrix(1), .total = sum.mutable_data()});
    return sum;
  }

  bool log_;
};

const Op& exponential_scan(bool log) {
  static const ExponentialScan sums(false), logarithm(true);
  return log ? logarithm : sums;
}

// Returns f(x, dim), with dim counted from the first dimension. As in torch, a
// scalar is a row of one element.
template <class F>
DistTensor along_row(const DistTensor& x, int dim, std::string_view op, F&& f) {
  check_defined(op, x);
  if (x.ndim() == 0 && (dim == 0 || dim == -1))
    return reshape(f(reshape(x, {1}), 0), {});
  return f(x, normalize_dim(dim, x.ndim(), op));
}

// cumsum() or cumprod(). Integers and bools are converted to i64.
DistTensor accumulated(Kind kind, const DistTensor& x, int dim) {
  return along_row(
      x, dim, scan_op(kind).name(), [&](const DistTensor& row, int d) {
        return scan(kind, is_float(x.dtype()) ? row : cast(row, DType::kI64),
                    d);
      });
}

std::pair<DistTensor, DistTensor> running(Kind kind, const DistTensor& x,
                                          int dim) {
  const std::string& op = scan_op(kind).name();
  const DistTensor y = along_row(x, dim, op, [&](const DistTensor& row, int d) {
    return scan(kind, row, d);
  });
  if (x.ndim() == 0) return {y, full({}, 0, x.mesh(), {}, DType::kI64)};
  return {y, last_place(x, y, normalize_dim(dim, x.ndim(), op))};
}

}  // namespace

static const OpFamily kFamily("reduce", [] {
  return OpList{&scan_op(Kind::kSum),    &scan_op(Kind::kProd),
                &scan_op(Kind::kMax),    &scan_op(Kind::kMin),
                &exponential_scan(true), &exponential_scan(false)};
});

DistTensor cumsum(const DistTensor& x, int dim) {
  return accumulated(Kind::kSum, x, dim);
}
DistTensor cumprod(const DistTensor& x, int dim) {
  return accumulated(Kind::kProd, x, dim);
}
std::pair<DistTensor, DistTensor> cummax(const DistTensor& x, int dim) {
  return running(Kind::kMax, x, dim);
}
std::pair<DistTensor, DistTensor> cummin(const DistTensor& x, int dim) {
  return running(Kind::kMin, x, dim);
}
DistTensor logcumsumexp(const DistTensor& x, int dim) {
  const Op& op = exponential_scan(true);
  return along_row(x, dim, op.name(), [&](const DistTensor& row, int d) {
    return apply1(op, row, ScanArgs{d, false});
  });
}

}  // namespace dtensor
