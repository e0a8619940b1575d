// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/create.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/diagonal.h"
#include "dtensor/ops/gather_op.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

// Returns the column numbers [1, columns] and the row numbers [rows, 1], split
// as the last two dimensions of `like` are (whole without `like`).
std::pair<DistTensor, DistTensor> numbers(int64_t rows, int64_t columns,
                                          const Mesh& mesh,
                                          const Layout* like = nullptr) {
  auto indices = [&](int64_t n, size_t from_last) {
    Layout l = Layout::replicated({n});
    if (like) l.dims[0] = like->dims[like->dims.size() - from_last];
    return arange(n, mesh, l, DType::kI64);
  };
  return {unsqueeze(indices(columns, 1), 0), unsqueeze(indices(rows, 2), 1)};
}

DistTensor number(double value, const DistTensor& like) {
  return full({}, value, like.mesh(), {}, like.dtype());
}

DistTensor triangle(std::string_view op, const DistTensor& x, int64_t diagonal,
                    bool lower) {
  check_defined(op, x);
  DT_CHECK(x.ndim() >= 2, op,
           "{} is not a matrix; pass a tensor of at least two dimensions",
           x.spec()->to_string());
  const auto [column, row] =
      numbers(x.size(-2), x.size(-1), x.mesh(), &x.layout());
  const DistTensor last =
      add(row, std::clamp(diagonal, -x.size(-2), x.size(-1)));
  return where(lower ? le(column, last) : ge(column, last), x, number(0, x));
}

}  // namespace

DistTensor full_like(const DistTensor& x, double value) {
  check_defined("full_like", x);
  Layout l = x.layout();
  l.partials.clear();
  return full(x.shape(), value, x.mesh(), l, x.dtype());
}
DistTensor zeros_like(const DistTensor& x) { return full_like(x, 0); }
DistTensor ones_like(const DistTensor& x) { return full_like(x, 1); }

DistTensor arange(double start, double end, double step, const Mesh& mesh,
                  const Placements& layout, DType t) {
  DT_CHECK(step != 0 && std::isfinite(step) && std::isfinite(end - start),
           "arange",
           "cannot count from {} to {} in steps of {}; write finite numbers "
           "with a finite difference, and a step other than 0",
           start, end, step);
  const double n = std::ceil((end - start) / step);
  DT_CHECK(
      n >= 0, "arange",
      "steps of {} do not lead from {} to {}; write a step of the other sign",
      step, start, end);
  constexpr double kMost = int64_t{1} << 53;  // counted exactly
  DT_CHECK(n <= kMost, "arange",
           "{} to {} in steps of {} gives {} numbers; write a step that gives "
           "at most 2^53",
           start, end, step, n);
  const DistTensor i =
      arange(static_cast<int64_t>(n), mesh, layout, DType::kF64);
  return cast(add(mul(i, step), start), t);
}

DistTensor eye(int64_t rows, int64_t columns, const Mesh& mesh, DType t) {
  DT_CHECK(rows >= 0 && columns >= 0, "eye",
           "rows is {} and columns is {}; write 0 or more", rows, columns);
  const auto [column, row] = numbers(rows, columns, mesh);
  return cast(eq(column, row), t);
}

DistTensor tril(const DistTensor& x, int64_t diagonal) {
  return triangle("tril", x, diagonal, true);
}
DistTensor triu(const DistTensor& x, int64_t diagonal) {
  return triangle("triu", x, diagonal, false);
}

DistTensor trace(const DistTensor& x) {
  check_defined("trace", x);
  DT_CHECK(x.ndim() == 2, "trace",
           "{} is not a matrix; pass a tensor of two dimensions",
           x.spec()->to_string());
  return sum(diagonal(x));
}

DistTensor masked_fill(const DistTensor& x, const DistTensor& mask,
                       const DistTensor& value) {
  check_defined("masked_fill", {x, mask, value});
  DT_CHECK(mask.dtype() == DType::kBool, "masked_fill",
           "the mask is {}; pass a mask of bool", mask.spec()->to_string());
  DT_CHECK(value.ndim() == 0, "masked_fill",
           "the value is {}, not a scalar; pass a tensor without dimensions",
           value.spec()->to_string());
  return where(mask, cast(value, x.dtype()), x);
}
DistTensor masked_fill(const DistTensor& x, const DistTensor& mask,
                       double value) {
  check_defined("masked_fill", x);
  return masked_fill(x, mask, number(value, x));
}

DistTensor one_hot(const DistTensor& indices, int64_t classes) {
  check_defined("one_hot", indices);
  DT_CHECK(classes >= 1, "one_hot", "classes is {}; write at least 1", classes);
  DT_CHECK(indices.dtype() == DType::kI32 || indices.dtype() == DType::kI64,
           "one_hot",
           "the indices are {}, but must be i32 or i64; write cast(indices, "
           "DType::kI64)",
           name(indices.dtype()));
  const DistTensor index = unsqueeze(cast(indices.detach(), DType::kI64), -1);
  return put_in_rows(ones_like(index), index, classes);
}

DistTensor empty(const Shape& shape, const Mesh& mesh,
                 const Placements& placements, DType type) {
  return DistTensor::empty(
      Spec::get(mesh, shape, placements.resolve(mesh, shape), type));
}

}  // namespace dtensor
