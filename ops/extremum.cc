// SPDX-License-Identifier: Apache-2.0
// Maxima, minima, products and sums of squares over whole dimensions.
#include <algorithm>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/exact.h"
#include "dtensor/ops/kernels/operands.h"
#include "dtensor/ops/kernels/reduce.h"
#include "dtensor/ops/kernels/rows.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/statistics.h"
#include "dtensor/ops/sum_squares.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"
#include "dtensor/scopes.h"

namespace dtensor {
namespace {

struct ExtremumArgs {
  static constexpr Fields kFields = {"dims"};
  Shape dims;  // reduced, in ascending order
};

// The rule that reduces the dimensions of the ExtremumArgs: by `of_dim`, such
// as "max", or by a sum if that is empty. `notes` are the rule's other notes,
// with their " | ".
BoundRule reducing(std::string_view op, const Shape& shape, const Attrs& attrs,
                   std::string notes, std::string_view of_dim) {
  const Shape& dims = attrs.as<ExtremumArgs>().dims;
  std::string in, out;
  for (int d = 0; d < shape.size(); ++d) {
    const char c = static_cast<char>('a' + d);
    in += c;
    if (std::find(dims.begin(), dims.end(), d) == dims.end())
      out += c;
    else if (!of_dim.empty())
      notes += fmt::format("{}{}:{}", notes.empty() ? " | " : "; ", c, of_dim);
  }
  return BoundRule(Rule(in + "->" + out + notes), {shape}, op);
}

// The shape of x with a 1 for each dimension that is reduced.
Shape kept_shape(const DistTensor& x, const Attrs& attrs) {
  Shape shape = x.shape();
  for (int64_t d : attrs.as<ExtremumArgs>().dims)
    shape[static_cast<int>(d)] = 1;
  return shape;
}

// Reduces the dimensions of the ExtremumArgs in this rank's part.
void reduce_part(Compute& c, kernels::ReduceKind kind) {
  uint32_t dims = 0;
  for (int64_t d : c.attrs.as<ExtremumArgs>().dims) dims |= 1u << d;
  const Tensor& x = c.in[0];
  c.run(kernels::Reduce{.kind = kind,
                        .type = x.dtype(),
                        .shape = x.shape(),
                        .in = x.data(),
                        .strides = x.strides(),
                        .dims = dims,
                        .out = c.out[0].mutable_data()});
}

std::vector<int> dims_of(const Attrs& attrs) {
  const Shape& dims = attrs.as<ExtremumArgs>().dims;
  return {dims.begin(), dims.end()};
}

class Extremum : public Op {
 public:
  explicit Extremum(bool max)
      : Op(max ? "amax" : "amin", {.saves_outputs = true}), max_(max) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    return reducing(name(), shapes[0], attrs, max_ ? " | max 0" : " | min 0",
                    max_ ? "max" : "min");
  }
  void compute(Compute& c) const override {
    reduce_part(c,
                max_ ? kernels::ReduceKind::kMax : kernels::ReduceKind::kMin);
  }
  InputGradients gradient(const GradientCall& g) const override {
    const DistTensor& x = g.inputs[0];
    const Shape kept = kept_shape(x, g.attrs);
    DistTensor best = reshape(g.outputs[0].detach(), kept);
    DistTensor winners = cast(eq(x.detach(), best), x.dtype());
    DistTensor share = div(winners, sum(winners, dims_of(g.attrs), true));
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

// The product over dimensions. A rank multiplies its own elements, and the
// output is partial by a product.
class Product : public Op {
 public:
  Product() : Op("prod", {.sums = OpFacts::Sums::kTogether}) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    return reducing(name(), shapes[0], attrs, "", "prod");
  }
  void compute(Compute& c) const override {
    reduce_part(c, kernels::ReduceKind::kProd);
  }
  // dx[i] = dy * (the product of all elements but x[i]). With one zero among
  // them, only its own dx can differ from 0; with two, every dx is 0.
  InputGradients gradient(const GradientCall& g) const override {
    const DistTensor& x = g.inputs[0];
    const DistTensor dy = reshape(g.cotangents[0], kept_shape(x, g.attrs));
    if (grad_enabled()) return {mul(dy, product_of_others(x, g.attrs))};
    const DistTensor zero = eq(x, 0), safe = where(zero, 1, x);
    const DistTensor count = cast(zero, DType::kI64);
    const DistTensor others =
        div(reshape(apply1(*this, safe, g.attrs), dy.shape()), safe);
    return {mul(
        dy, where(eq(sum(count, dims_of(g.attrs), true), count), others, 0))};
  }
  std::vector<Sample> samples() const override {
    SampleInput middle{{4, 3, 2}}, some{{5, 3}};
    middle.zeros = some.zeros = true;
    return {{{middle}, ExtremumArgs{{0, 2}}, true},
            {{some}, ExtremumArgs{{1}}, true},
            {{{{5, 3}}}, ExtremumArgs{{0, 1}}, true}};
  }

 private:
  // For each element, the product of the others, which is differentiable even
  // at zeros: running products from both ends.
  static DistTensor product_of_others(const DistTensor& x, const Attrs& attrs) {
    const std::vector<int> dims = dims_of(attrs);
    std::vector<int> last;
    for (size_t i = 0; i < dims.size(); ++i)
      last.push_back(x.ndim() - static_cast<int>(dims.size() - i));
    const DistTensor rows = movedim(x, dims, last);
    const DistTensor flat = flatten(rows, last[0], -1);
    const auto before = [&](const DistTensor& t) {
      return pad(cumprod(t, -1), {1, -1}, 1);
    };
    const DistTensor others =
        mul(before(flat), flip(before(flip(flat, {-1})), {-1}));
    return movedim(reshape(others, rows.shape()), last, dims);
  }
};

const Product& product_op() {
  static const Product op;
  return op;
}

// The sum of squares over the last dimensions. The squares are not stored.
class SumSquares : public Op {
 public:
  SumSquares() : Op("sum_squares", {}) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    return reducing(name(), shapes[0], attrs, "", "");
  }
  void compute(Compute& c) const override {
    const Tensor x = c.in[0].to_contiguous();
    int64_t n = 1;
    for (int64_t d : c.attrs.as<ExtremumArgs>().dims)
      n *= x.shape()[static_cast<int>(d)];
    const Tensor& y = c.out[0];
    const int64_t rows = y.numel();
    // On a GPU, the kernel SumSquares spreads one long row over all processors,
    // and RowDot many short rows. RowDot writes f32 sums for half types.
    const bool few = rows <= 16, half = is_half_float(y.dtype());
    const Tensor sums = few    ? c.scratch(y.shape(), DType::kF64)
                        : half ? c.scratch(y.shape(), DType::kF32)
                               : y;
    if (few) {
      sums.fill(0);
      for (int64_t r = 0; r < rows; ++r)
        c.run(
            kernels::SumSquares{.type = x.dtype(),
                                .n = n,
                                .x = x.ptr<char>() + r * n * size_of(x.dtype()),
                                .sum = sums.mutable_ptr<double>() + r});
    } else {
      const kernels::Matrix all{x.dtype(), rows, n, x.data(), n};
      c.run(kernels::RowDot{all, all, sums.mutable_data()});
    }
    if (few || half)
      y.device().cast(c.stream, y.shape(), y.dtype(), y.mutable_data(),
                      y.strides(), sums.dtype(), sums.data(), sums.strides());
  }
  InputGradients gradient(const GradientCall& g) const override {
    const DistTensor& x = g.inputs[0];
    const Shape kept = kept_shape(x, g.attrs);
    return {mul(x, mul(reshape(g.cotangents[0], kept), 2))};
  }
  std::vector<Sample> samples() const override {
    Sample rows, all, many;
    rows.inputs = {{Shape{5, 3, 2}}};
    rows.attrs = ExtremumArgs{{1, 2}};
    all.inputs = {{Shape{5, 3}}};
    all.attrs = ExtremumArgs{{0, 1}};
    many.inputs = {{Shape{71, 3}}};  // > 16 rows even if 3 ranks share them
    many.attrs = ExtremumArgs{{1}};
    return {rows, all, many};
  }
};

const SumSquares& sum_squares_op() {
  static const SumSquares op;
  return op;
}

const Extremum& extremum_op(bool max) {
  static const Extremum largest(true), smallest(false);
  return max ? largest : smallest;
}

ExtremumArgs reduced_dims(std::string_view op, const DistTensor& x,
                          const std::vector<int>& dims) {
  check_defined(op, x);
  std::vector<int> times(static_cast<size_t>(x.ndim()), dims.empty());
  for (int r : dims) {
    // As in torch, a scalar has a dimension 0.
    if (x.ndim() == 0 && (r == 0 || r == -1)) continue;
    const int d = normalize_dim(r, x.ndim(), op);
    DT_CHECK(++times[static_cast<size_t>(d)] == 1, op,
             "dimension {} of {} is named twice; name it once", d,
             x.spec()->to_string());
  }
  ExtremumArgs args;
  for (int d = 0; d < x.ndim(); ++d)
    if (times[static_cast<size_t>(d)] > 0) args.dims.push_back(d);
  return args;
}

DistTensor reduce_dims(const Op& op, const DistTensor& x,
                       const ExtremumArgs& args, bool keepdim) {
  if (args.dims.empty()) return alias(x);
  const DistTensor y = apply1(op, x, args);
  return keepdim ? reshape(y, kept_shape(x, args)) : y;
}

DistTensor extremum(bool max, const DistTensor& x, const std::vector<int>& dims,
                    bool keepdim) {
  const Op& op = extremum_op(max);
  const ExtremumArgs args = reduced_dims(op.name(), x, dims);
  for (int64_t d : args.dims)
    DT_CHECK(x.size(static_cast<int>(d)) > 0, op.name(),
             "dimension {} of {} is empty, so its {} is not defined; pass a "
             "tensor with elements",
             d, x.spec()->to_string(), max ? "maximum" : "minimum");
  return reduce_dims(op, x, args, keepdim);
}

}  // namespace

static const OpFamily kFamily("extremum", [] {
  return OpList{&extremum_op(true), &extremum_op(false), &product_op(),
                &sum_squares_op()};
});

DistTensor amax(const DistTensor& x, std::vector<int> dims, bool keepdim) {
  return extremum(true, x, dims, keepdim);
}
DistTensor amin(const DistTensor& x, std::vector<int> dims, bool keepdim) {
  return extremum(false, x, dims, keepdim);
}
DistTensor prod(const DistTensor& x, const std::vector<int>& dims,
                bool keepdim) {
  const ExtremumArgs args = reduced_dims("prod", x, dims);
  return reduce_dims(product_op(),
                     is_float(x.dtype()) ? x : cast(x, DType::kI64), args,
                     keepdim);
}

DistTensor sum_squares(const DistTensor& x, const std::vector<int>& dims,
                       bool keepdim) {
  std::vector<bool> reduced(static_cast<size_t>(x.ndim()), dims.empty());
  for (int d : dims)
    reduced[static_cast<size_t>(normalize_dim(d, x.ndim(), "sum"))] = true;
  const auto count = std::count(reduced.begin(), reduced.end(), true);
  int first = x.ndim();
  while (first > 0 && reduced[static_cast<size_t>(first - 1)]) --first;
  // SumSquares reduces whole rows, so only the last dimensions. Half types are
  // excluded: sum(square(x)) rounds their squares, but SumSquares would not.
  // Nor does it add exactly.
  if (first == x.ndim() || (!dims.empty() && count != std::ssize(dims)) ||
      is_half_float(x.dtype()) || reproducible(x.dtype()))
    return sum(square(x), dims, keepdim);
  ExtremumArgs args;
  Shape kept = x.shape();
  std::vector<int> others;
  for (int d = 0; d < x.ndim(); ++d) {
    if (!reduced[static_cast<size_t>(d)]) continue;
    kept[d] = 1;
    if (d < first)
      others.push_back(d);
    else
      args.dims.push_back(d);
  }
  DistTensor y = apply1(sum_squares_op(), x, args);
  if (!others.empty()) y = sum(y, others);
  return keepdim ? reshape(y, kept) : y;
}

}  // namespace dtensor
