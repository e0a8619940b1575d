// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/linalg_op.h"

#include "dtensor/data_check.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/kernels/gemm.h"
#include "dtensor/ops/kernels/reduce.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/rows.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor {

Matrices::Matrices(const Tensor& x)
    : t(x.to_contiguous()), m(x.shape()[x.ndim() - 2]), n(x.shape().back()) {
  for (int d = 0; d + 2 < x.ndim(); ++d) count *= x.shape()[d];
}

void multiply(Compute& c, const Tensor& a, const Tensor& b, const Tensor& out,
              bool accumulate) {
  const Shape &of_a = a.strides(), &of_b = b.strides(), &of_out = out.strides();
  if (out.numel() == 0) return;
  c.run(kernels::Gemm{.type = out.dtype(),
                      .c_type = out.dtype(),
                      .batch = {out.shape()[0]},
                      .m = out.shape()[1],
                      .n = out.shape()[2],
                      .k = a.shape()[2],
                      .a = a.data(),
                      .a_batch_strides = {of_a[0]},
                      .a_m = of_a[1],
                      .a_k = of_a[2],
                      .b = b.data(),
                      .b_batch_strides = {of_b[0]},
                      .b_k = of_b[1],
                      .b_n = of_b[2],
                      .c = out.mutable_data(),
                      .c_batch_strides = {of_out[0]},
                      .c_m = of_out[1],
                      .c_n = of_out[2],
                      .accumulate = accumulate,
                      .by_leaves = c.context.reproducible});
}

Tensor repeated(const Tensor& x, const Tensor& out, int own) {
  Shape shape;
  for (int d = 0; d + 2 < out.ndim(); ++d) shape.push_back(out.shape()[d]);
  for (int d = x.ndim() - own; d < x.ndim(); ++d) shape.push_back(x.shape()[d]);
  return x.expand(shape).to_contiguous();
}

void most_of(Compute& c, const Tensor& failed, const Tensor& most) {
  c.run(kernels::Reduce{.kind = kernels::ReduceKind::kMax,
                        .type = DType::kI64,
                        .shape = failed.shape(),
                        .in = failed.data(),
                        .strides = failed.strides(),
                        .dims = 1,
                        .out = most.mutable_data()});
}

void check_failed(Compute& c, const Tensor& most, std::vector<int64_t> begins,
                  std::string (*sentence)(int64_t row)) {
  if (c.context.dry_run) return;
  check(c.context, {.op = c.op.name(),
                    .found = most,
                    .mesh = c.mesh(),
                    .axes = c.decision.in[0]->split_axes(),
                    .judge = [op = c.op.name(), begins = std::move(begins),
                              sentence](std::span<const int64_t> rows) {
                      for (size_t i = 0; i < rows.size(); ++i)
                        if (rows[i] > 0)
                          fail(op, "{}", sentence(begins[i] + rows[i] - 1));
                    }});
}

IntervalList listed(const Interval& i) {
  return i.size() > 0 ? IntervalList{i} : IntervalList{};
}

Region region_at(const Spec& matrices, const Coord& at, IntervalList rows,
                 IntervalList columns) {
  const Shape part = matrices.local_shape(at);
  int64_t count = 1;
  for (int d = 0; d + 2 < part.size(); ++d) count *= part[d];
  return {listed({0, count}), std::move(rows), std::move(columns)};
}

BoundRule MatrixOp::bind(const std::vector<Shape>& shapes, const Attrs&) const {
  const Shape& x = shapes[0];
  const int d = x.size();
  DT_CHECK(d >= 2 && (tall_ ? x[d - 2] >= x[d - 1] : x[d - 2] == x[d - 1]),
           name(), "{} are not {} matrices; pass [..., {}", to_string(x),
           tall_ ? "tall" : "square", tall_ ? "m, n] with m >= n" : "n, n]");
  std::vector<std::pair<char, int64_t>> sizes;
  if (shapes.size() == 1 && rule_.factor('k') >= 0) sizes = {{'k', x.back()}};
  return BoundRule(rule_, shapes, name(), sizes);
}

std::vector<DType> MatrixOp::out_dtypes(std::span<const DType> in,
                                        const Attrs&) const {
  check_one_type(name(), in);
  DT_CHECK(size_of(in[0]) >= 4, name(),
           "does not take {}; cast the matrices to f32", dtensor::name(in[0]));
  return std::vector<DType>(rule_.outputs().size(), in[0]);
}

kernels::Triangle triangle_of(const Attrs& attrs) {
  return static_cast<kernels::Triangle>(attrs.as<TriangleArgs>().triangle);
}

TriangleArgs triangle_args(bool upper) {
  return {static_cast<int64_t>(upper ? kernels::Triangle::kUpper
                                     : kernels::Triangle::kLower)};
}

void check_matrices(std::string_view op, const DistTensor& x) {
  check_defined(op, x);
  DT_CHECK(x.ndim() >= 2, op,
           "{} has no matrices; pass a tensor with at least two dimensions",
           x.spec()->to_string());
}

void check_square(std::string_view op, const DistTensor& x) {
  check_matrices(op, x);
  DT_CHECK(x.size(-1) == x.size(-2), op,
           "{} has {} rows and {} columns; pass square matrices",
           x.spec()->to_string(), x.size(-2), x.size(-1));
}

DistTensor turned(const DistTensor& x) { return transpose(x, -2, -1); }
DistTensor by_column(const DistTensor& v) { return unsqueeze(v, -2); }
DistTensor by_row(const DistTensor& v) { return unsqueeze(v, -1); }

DistTensor mirrored(const DistTensor& upper) {
  return add(upper, turned(triu(upper, 1)));
}

DistTensor unit_matrix(const DistTensor& x) {
  return eye(x.size(-1), x.size(-1), x.mesh(), x.dtype());
}

DistTensor solved(const DistTensor& t, const DistTensor& b, bool upper,
                  bool unit) {
  return solve_triangular(t, b, upper, true, unit);
}

DistTensor divided(const DistTensor& b, const DistTensor& t, bool upper,
                   bool unit) {
  return solve_triangular(t, b, upper, false, unit);
}

}  // namespace dtensor
