// SPDX-License-Identifier: Apache-2.0
// Shared by operators that work row by row: local tensors as rows, and
// arithmetic on a few numbers per row.
#pragma once
#include "dtensor/ops/kernels/operands.h"
#include "dtensor/ops/op.h"

namespace dtensor {

// A local tensor [..., n] as [rows, n] with contiguous rows: a view, or a copy
// if its strides require one.
struct Rows {
  explicit Rows(const Tensor& x);
  // Rows along dimension `dim`, whose size over all ranks is `size`, for the
  // kernels of kernels/rows.h. If the sizes of the dimensions behind `dim`
  // multiply to at least 16, and `size` is at most 4096, the rows lie side by
  // side, as in x (Matrix::inner). Otherwise `dim` is exchanged with the last
  // dimension.
  Rows(const Tensor& x, int64_t dim, int64_t size);
  const void* data() const { return t.data(); }
  operator kernels::Matrix() const {
    return {t.dtype(), rows, n, data(), stride, inner};
  }

  Tensor t;
  int64_t rows, n, stride, inner = 1;
};

// The rule of an operator along dimension `dim` of tensors with `ndim`
// dimensions. `rule` is the one for the last dimension, in which each tensor is
// "...n". Throws Error if the dimension does not exist.
Rule along(std::string_view rule, int ndim, int64_t dim, std::string_view op);
// A view in which dimension `dim` and the last one are exchanged.
Tensor with_last(const Tensor&, int64_t dim);
// Calls fn(y), where y is contiguous and arranged as `rows` along `dim`: `out`
// itself, or a scratch tensor, which is then copied to `out`.
template <class Fn>
void into_rows(Compute& c, const Tensor& out, const Rows& rows, int64_t dim,
               Fn&& fn) {
  if (rows.inner > 1 || dim == out.ndim() - 1) return fn(out);
  Tensor view = with_last(out, dim);
  const Tensor y = c.scratch(view.shape(), out.dtype());
  fn(y);
  view.copy_from(y);
}

// out = f(a) and out = f(a, b), where f has this index in fn::UnaryFunctions or
// fn::BinaryFunctions. A unary f may have one parameter; a binary f must have
// none. The tensors are local, contiguous and of one size; out may be an
// operand.
void row_unary(Compute&, int index, const Tensor& a, const Tensor& out,
               double parameter = 0);
void row_binary(Compute&, int index, const Tensor& a, const Tensor& b,
                const Tensor& out);
// out = condition ? a : b. out may be a or b.
void row_where(Compute&, const Tensor& condition, const Tensor& a,
               const Tensor& b, const Tensor& out);

// For rows that a factor splits. On entry, `max` and `sum` are the results of
// kernels::RowMaxSum for this rank's part of each row. On return, `max` is the
// maximum of the whole row, and `sum` is this part's sum of exp(x - max).
// Collective.
void to_common_max(Compute&, char factor, const Tensor& max, const Tensor& sum);

// sum = the sum of exp(x - max) over each whole row that a factor may split, in
// a reproducible run: as integers (kernels::ExpUnits), so that the split does
// not matter. The rows of x are not side by side. Collective.
void sum_exps(Compute&, char factor, const kernels::Matrix& x,
              const Tensor& max, const Tensor& sum);

// Throws Error unless input 0 is a float type and inputs `from` and later have
// the same one.
void check_one_type(std::string_view op, std::span<const DType> in,
                    size_t from = 1);
void check_float(std::string_view op, DType);

// Throws Error unless each shape from shapes[first] on is shapes[0], or
// shapes[0] without its last dimension: rows do not broadcast.
void check_rows(std::string_view op, const std::vector<Shape>& shapes,
                size_t first);

// Throws Error if an output other than the first `count` has a cotangent: the
// statistics that an operator saves for its gradient cannot have one.
void check_first_only(const GradientCall&, size_t count = 1);

// The forward pass's assignment, for a gradient rule with the same factors in
// the same order. It lacks the partials that passed through the forward pass.
Assignment inherited(const GradientCall&);

}  // namespace dtensor
