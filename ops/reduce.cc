#include "dtensor/ops/reduce.h"

#include <algorithm>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/ops/op_lists.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/rows.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"

namespace dtensor {
namespace {

struct ExtremumArgs {
  static constexpr Fields kFields = {"dims"};
  Shape dims;  // reduced, in ascending order
};

class Extremum : public Op {
 public:
  explicit Extremum(bool max) : Op(max ? "amax" : "amin"), max_(max) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    const Shape& dims = attrs.as<ExtremumArgs>().dims;
    std::string in, out, notes = max_ ? " | max 0" : " | min 0";
    for (int d = 0; d < shapes[0].size(); ++d) {
      char c = static_cast<char>('a' + d);
      in += c;
      if (std::find(dims.begin(), dims.end(), d) == dims.end())
        out += c;
      else
        notes += fmt::format("; {}:{}", c, max_ ? "max" : "min");
    }
    return BoundRule(Rule(in + "->" + out + notes), shapes, name());
  }
  void compute(Compute& c) const override {
    uint32_t dims = 0;
    for (int64_t d : c.attrs.as<ExtremumArgs>().dims) dims |= 1u << d;
    const Tensor& x = c.in[0];
    c.run(kernels::Reduce{
        .kind = max_ ? kernels::ReduceKind::kMax : kernels::ReduceKind::kMin,
        .type = x.dtype(),
        .shape = x.shape(),
        .in = x.data(),
        .strides = x.strides(),
        .dims = dims,
        .out = c.out[0].mutable_data()});
  }
  bool saves_outputs() const override { return true; }
  std::vector<DistTensor> gradient(const GradientCall& g) const override {
    const DistTensor& x = g.inputs[0];
    Shape kept = x.shape();
    std::vector<int> dims;
    for (int64_t d : g.attrs.as<ExtremumArgs>().dims) {
      kept[static_cast<int>(d)] = 1;
      dims.push_back(static_cast<int>(d));
    }
    DistTensor best = reshape(g.outputs[0].detach(), kept);
    DistTensor winners = cast(eq(x.detach(), best), x.dtype());
    DistTensor share = div(winners, sum(winners, dims, true));
    return {mul(share, reshape(g.cotangents[0], kept))};
  }
  std::vector<Sample> samples() const override {
    Sample rows, all;
    rows.inputs = {{Shape{5, 3, 2}}};
    rows.attrs = ExtremumArgs{{1}};
    all.inputs = {{Shape{5, 3}}};
    all.attrs = ExtremumArgs{{0, 1}};
    return {rows, all};
  }

 private:
  bool max_;
};

const Extremum& extremum_op(bool max) {
  static const Extremum largest(true), smallest(false);
  return max ? largest : smallest;
}

DistTensor extremum(bool max, const DistTensor& x, std::vector<int> dims,
                    bool keepdim) {
  const Op& op = extremum_op(max);
  check_defined(op.name(), {&x, 1});
  ExtremumArgs args;
  Shape kept = x.shape();
  std::vector<int> times(static_cast<size_t>(x.ndim()), dims.empty());
  for (int r : dims) {
    // As in torch, a scalar has a dimension 0.
    if (x.ndim() == 0 && (r == 0 || r == -1)) continue;
    const int d = normalize_dim(r, x.ndim(), op.name());
    DT_CHECK(++times[static_cast<size_t>(d)] == 1, op.name(),
             "dimension {} of {} is named twice", d, x.spec()->to_string());
  }
  for (int d = 0; d < x.ndim(); ++d) {
    const bool reduced = times[static_cast<size_t>(d)] > 0;
    if (!reduced) continue;
    args.dims.push_back(d);
    DT_CHECK(x.size(d) > 0, op.name(),
             "dimension {} of {} is empty, so its {} is not defined", d,
             x.spec()->to_string(), max ? "maximum" : "minimum");
    kept[d] = 1;
  }
  if (args.dims.empty()) return alias(x);
  DistTensor y = apply1(op, {&x, 1}, args);
  return keepdim ? reshape(y, kept) : y;
}

struct CumsumArgs {
  static constexpr Fields kFields = {"dim", "reverse"};
  int64_t dim;
  bool reverse;  // from the end
};

// If the dimension is split, every rank sums its part, receives the sums of the
// parts before its own (one number per row and rank), and starts from their
// sum.
class Cumsum : public Op {
 public:
  Cumsum() : Op("cumsum") {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    const int64_t dim = attrs.as<CumsumArgs>().dim;
    return BoundRule(
        along("...n~->...n^ | linear 0", shapes[0].size(), dim, name()), shapes,
        name());
  }
  std::vector<Sample> samples() const override {
    return {{{{{5, 3}}}, CumsumArgs{0, false}, true},
            {{{{3, 7}}}, CumsumArgs{1, true}, true},
            {{{{2, 5, 3}}}, CumsumArgs{1, false}, true}};
  }
  bool saves_inputs() const override { return false; }
  OpWork work() const override { return {1, {'n', "", 1}}; }

  void compute(Compute& c) const override {
    const int64_t dim = c.attrs.as<CumsumArgs>().dim;
    const bool reverse = c.attrs.as<CumsumArgs>().reverse;
    const DType t = c.in[0].dtype(), sum = kernels::scan_type_of(t);
    const Rows x(with_last(c.in[0], dim));
    kernels::ScanRows scan{.x = x, .reverse = reverse};
    Tensor carry;
    if (const AxisMask axes = c.axes_of('n')) {
      const Tensor total = c.scratch({1, x.rows}, sum);
      scan.total = total.mutable_data();
      c.run(scan);
      // [parts, rows]; a rank may have no rows.
      const auto sums_of = [&](const Coord& at, int64_t lo, int64_t hi) {
        const int64_t rows = c.rows_at('n', at);
        const auto range = [](int64_t from, int64_t to) {
          return from < to ? IntervalList{{from, to}} : IntervalList{};
        };
        return Region{range(lo, hi), range(0, rows)};
      };
      const Tensor others = c.fetch(
          total, axes,
          [&](const Coord& at) {
            const int64_t i = c.place_of('n', at);
            return sums_of(at, i, i + 1);
          },
          [&](const Coord& at) {
            const int64_t i = c.place_of('n', at);
            return reverse ? sums_of(at, i + 1, c.mesh().size_of(axes))
                           : sums_of(at, 0, i);
          });
      carry = c.scratch({x.rows}, sum);
      c.run(kernels::Reduce{.type = sum,
                            .shape = others.shape(),
                            .in = others.data(),
                            .strides = others.strides(),
                            .dims = 1,
                            .out = carry.mutable_data()});
      scan.carry = carry.data();
      scan.total = nullptr;
    }
    into_rows(c, c.out[0], dim, [&](const Tensor& y) {
      scan.out = y.mutable_data();
      c.run(scan);
    });
  }

  std::vector<DistTensor> gradient(const GradientCall& g) const override {
    CumsumArgs args = g.attrs.as<CumsumArgs>();
    args.reverse = !args.reverse;
    const Assignment a = inherited(g);
    return {apply1(*this, g.cotangents, args, &a)};
  }
};

const Cumsum& cumsum_op() {
  static const Cumsum op;
  return op;
}

}  // namespace

OpList reduce_ops() {
  return {&extremum_op(true), &extremum_op(false), &cumsum_op()};
}

DistTensor amax(const DistTensor& x, std::vector<int> dims, bool keepdim) {
  return extremum(true, x, std::move(dims), keepdim);
}
DistTensor amin(const DistTensor& x, std::vector<int> dims, bool keepdim) {
  return extremum(false, x, std::move(dims), keepdim);
}

DistTensor cumsum(const DistTensor& x, int dim) {
  check_defined("cumsum", {&x, 1});
  if (!is_float(x.dtype()) && x.dtype() != DType::kI64)
    return cumsum(cast(x, DType::kI64), dim);
  // As in torch, a scalar is a row of one element.
  if (x.ndim() == 0 && (dim == 0 || dim == -1))
    return reshape(cumsum(reshape(x, {1}), 0), {});
  return apply1(cumsum_op(), {&x, 1},
                CumsumArgs{normalize_dim(dim, x.ndim(), "cumsum"), false});
}

}  // namespace dtensor
