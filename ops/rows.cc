// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/rows.h"

#include <cmath>

#include "dtensor/ops/functions/lists.h"
#include "dtensor/ops/kernels/exact_sum.h"
#include "dtensor/ops/kernels/pointwise.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"

namespace dtensor {
namespace {

kernels::Pointwise flat(const Tensor& out, DType t,
                        std::array<const void*, 3> in) {
  return {.type = t,
          .shape = {out.numel()},
          .out = out.mutable_data(),
          .in = in,
          .strides = {Shape{1}, Shape{1}, Shape{1}}};
}

}  // namespace

Rows::Rows(const Tensor& x) : rows(1), n(x.shape().back()) {
  for (int d = 0; d + 1 < x.ndim(); ++d) rows *= x.shape()[d];
  t = x.reshape({rows, n});
  if (n > 1 && t.strides()[1] != 1) t = t.to_contiguous();
  stride = t.strides()[0];
}

Rows::Rows(const Tensor& x, int64_t dim, int64_t size) {
  // If rows lie side by side, a GPU has a thread for each row, and the CPU an
  // element of a vector register. That suits many short rows only.
  constexpr int64_t kLeastInner = 16, kLongest = 4096;
  for (int d = static_cast<int>(dim) + 1; d < x.ndim(); ++d)
    inner *= x.shape()[d];
  // Rows side by side are added in turn, not by leaves (docs/reproducible.md).
  if (inner < kLeastInner || size > kLongest ||
      RankContext::current().reproducible) {
    *this = Rows(with_last(x, dim));
    return;
  }
  t = x.to_contiguous();
  rows = inner;
  for (int d = 0; d < dim; ++d) rows *= x.shape()[d];
  n = x.shape()[static_cast<int>(dim)];
  stride = n * inner;
}

Rule along(std::string_view rule, int ndim, int64_t dim, std::string_view op) {
  const int at = normalize_dim(dim, ndim, op);
  if (at == ndim - 1) return Rule(rule);
  std::string before, after, text;
  for (int d = 0; d < ndim; ++d)
    if (d != at) (d < at ? before : after) += static_cast<char>('a' + d);
  constexpr std::string_view kLast = "...n", kMarks = "!~^";
  for (size_t i = 0; i < rule.size();) {
    if (rule.substr(i, kLast.size()) != kLast) {
      text += rule[i++];
      continue;
    }
    i += kLast.size();
    text += before + 'n';
    while (i < rule.size() && kMarks.find(rule[i]) != kMarks.npos)
      text += rule[i++];
    text += after;
  }
  return Rule(text);
}

Tensor with_last(const Tensor& x, int64_t dim) {
  return x.transpose(static_cast<int>(dim), -1);
}

void row_unary(Compute& c, int index, const Tensor& a, const Tensor& out,
               double parameter) {
  c.run(kernels::Unary{.index = index,
                       .params = {&parameter, 1},
                       .of = flat(out, a.dtype(), {a.data()})});
}

void row_binary(Compute& c, int index, const Tensor& a, const Tensor& b,
                const Tensor& out) {
  c.run(kernels::Binary{.index = index,
                        .of = flat(out, a.dtype(), {a.data(), b.data()})});
}

void row_where(Compute& c, const Tensor& condition, const Tensor& a,
               const Tensor& b, const Tensor& out) {
  c.run(kernels::Where{
      flat(out, a.dtype(), {condition.data(), a.data(), b.data()})});
}

void to_common_max(Compute& c, char factor, const Tensor& max,
                   const Tensor& sum) {
  if (!c.axes_of(factor)) return;
  Tensor scale = c.scratch(max.shape(), max.dtype());
  scale.copy_from(max);
  c.reduce_rows(max, factor, ReduceOp::kMax);
  using namespace fn;
  row_binary(c, index_of<Sub>, scale, max, scale);
  row_unary(c, index_of<Exp>, scale, scale);
  row_binary(c, index_of<Mul>, sum, scale, sum);
}

void sum_exps(Compute& c, char factor, const kernels::Matrix& x,
              const Tensor& max, const Tensor& sum) {
  constexpr int64_t kMost = int64_t{1} << 22;
  DT_CHECK(c.global_size(factor) <= kMost, c.op.name(),
           "a reproducible run adds up at most {} exponentials, but a row has "
           "{}; leave --reproducible out",
           kMost, c.global_size(factor));
  const Tensor both = c.scratch({2, x.rows}, DType::kI64);
  const Tensor units = both.slice(0, 0, 1), nans = both.slice(0, 1, 2);
  c.run(kernels::ExpUnits{.x = x,
                          .max = max.data(),
                          .sums = units.mutable_ptr<int64_t>(),
                          .nans = nans.mutable_ptr<int64_t>()});
  c.reduce_rows(both, factor, ReduceOp::kSum, 2);
  const Tensor none = Tensor::full(nans.shape(), DType::kI64, 0),
               nan = Tensor::full(nans.shape(), sum.dtype(), NAN);
  const Tensor some = c.scratch(nans.shape(), DType::kBool);
  row_binary(c, fn::index_of<fn::Ne>, nans, none, some);
  c.device().cast(c.stream, units.shape(), sum.dtype(), sum.mutable_data(),
                  sum.strides(), DType::kI64, units.data(), units.strides());
  row_unary(c, fn::index_of<fn::MulScalar>, sum, sum, kernels::ExpUnits::kUnit);
  row_where(c, some, nan, sum, sum);
}

void check_float(std::string_view op, DType t) {
  DT_CHECK(is_float(t), op,
           "takes f32, f64, bf16 or f16, but got {}; write cast(x, "
           "DType::kF32)",
           name(t));
}

void check_one_type(std::string_view op, std::span<const DType> in,
                    size_t from) {
  check_float(op, in[0]);
  for (size_t i = from; i < in.size(); ++i)
    DT_CHECK(in[i] == in[0], op,
             "input 0 is {} and input {} is {}; cast both to one float type",
             name(in[0]), i, name(in[i]));
}

void check_rows(std::string_view op, const std::vector<Shape>& shapes,
                size_t first) {
  Shape rows = shapes[0];
  if (!rows.empty()) rows.pop_back();
  for (size_t i = first; i < shapes.size(); ++i)
    DT_CHECK(shapes[i] == shapes[0] || shapes[i] == rows, op,
             "input {} has shape {}, which is neither the {} of input 0 nor "
             "its rows, {}; pass one of these shapes",
             i, to_string(shapes[i]), to_string(shapes[0]), to_string(rows));
}

void check_first_only(const GradientCall& c, size_t count) {
  for (size_t i = count; i < c.cotangents.size(); ++i)
    DT_CHECK(!c.cotangents[i].defined(), c.op.name(),
             "output {}, a statistic of the rows, has no gradient; detach() it",
             i);
}

Assignment inherited(const GradientCall& c) {
  Assignment a = c.decision->assignment;
  a.passes.clear();
  return a;
}

}  // namespace dtensor
