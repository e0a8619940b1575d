// What the operators that work row by row share: local tensors as rows, and
// arithmetic on a few numbers per row.
#pragma once
#include "dtensor/ops/op.h"

namespace dtensor {

// A local tensor [..., n] as [rows, n] with contiguous rows: a view, or a copy
// where the strides do not allow one.
struct Rows {
  explicit Rows(const Tensor& x);
  const void* data() const { return t.data(); }

  Tensor t;
  int64_t rows, n, stride;
};

// A rule of an operator that works along one dimension, written for the last
// one as "...n", with n at dimension `dim` of tensors of that many dimensions.
// Throws Error when there is no such dimension.
Rule along(std::string_view rule, int ndim, int64_t dim, std::string_view op);
// A view with that dimension at the end.
Tensor with_last(const Tensor&, int64_t dim);
// Runs fn(y), y contiguous with dimension `dim` at the end, and leaves y in
// `out`.
template <class Fn>
void into_rows(Compute& c, const Tensor& out, int64_t dim, Fn&& fn) {
  if (dim == out.ndim() - 1) return fn(out);
  Tensor view = with_last(out, dim);
  const Tensor y = c.scratch(view.shape(), out.dtype());
  fn(y);
  view.copy_from(y);
}

// out = f(a) and out = f(a, b) by index in fn::UnaryFunctions and
// BinaryFunctions, on contiguous local tensors of one size; out may be an
// operand. f has no parameter, or this one.
void row_unary(Compute&, int index, const Tensor& a, const Tensor& out,
               double parameter = 0);
void row_binary(Compute&, int index, const Tensor& a, const Tensor& b,
                const Tensor& out);
// out = condition ? a : b; out may be a or b.
void row_where(Compute&, const Tensor& condition, const Tensor& a,
               const Tensor& b, const Tensor& out);

// Of parts of rows that are split by a factor: makes `max` the largest of the
// whole row, and `sum`, of exp(x - max), this part's with that one. Both are
// what row_max_sum() writes.
void to_common_max(Compute&, char factor, const Tensor& max, const Tensor& sum);

// Throws Error unless inputs `from` and later have the type of input 0.
void check_one_type(std::string_view op, std::span<const DType> in,
                    size_t from = 1);
void check_float(std::string_view op, DType);

// Throws Error unless each of shapes[first], ..., which belongs to the rows of
// shapes[0], has its shape, or that without the last dimension: rows do not
// broadcast.
void check_rows(std::string_view op, const std::vector<Shape>& shapes,
                size_t first);

// Throws Error when a cotangent has come to another output than the first
// `count`: the statistics that an operator saves for its gradient have none.
void check_first_only(const GradientCall&, size_t count = 1);

// The forward's assignment, for a gradient whose rule has the same letters in
// the same order. Partials that passed through the forward do not pass here.
Assignment inherited(const GradientCall&);

}  // namespace dtensor
