// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/ranges.h"

#include <algorithm>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

// n numbers between two ends in f64, rounded towards 0 if `whole`. Counts from
// both ends, so that they are exact.
DistTensor spaced(std::string_view op, const DistTensor& start,
                  const DistTensor& end, int64_t n, const Placements& layout,
                  bool whole) {
  check_defined(op, {start, end});
  for (const DistTensor& x : {start, end})
    DT_CHECK(x.ndim() == 0, op,
             "an end is {}; pass a tensor without dimensions",
             x.spec()->to_string());
  DT_CHECK(n >= 0, op, "n is {}; write 0 or more", n);
  const auto number = [&](const DistTensor& x) {
    const DistTensor y = cast(x, DType::kF64);
    return whole ? trunc(y) : y;
  };
  const DistTensor lo = number(start), hi = number(end),
                   i = arange(n, start.mesh(), layout, DType::kF64);
  if (n < 2) return add(i, lo);
  const auto last = static_cast<double>(n - 1);
  const DistTensor step = div(sub(hi, lo), last);
  return where(lt(i, n / 2), add(mul(i, step), lo),
               add(mul(sub(i, last), step), hi));
}

DistTensor scalar(double value, const Mesh& mesh) {
  return full({}, value, mesh, {}, DType::kF64);
}

// The row and column numbers on the diagonal and below it, or with `upper`
// above it.
DistTensor indices(std::string_view op, int64_t rows, int64_t columns,
                   int64_t offset, const Mesh& mesh, const Placements& layout,
                   DType t, bool upper) {
  DT_CHECK(rows >= 0 && columns >= 0, op,
           "rows is {} and columns is {}; write 0 or more", rows, columns);
  DT_CHECK(t == DType::kI32 || t == DType::kI64, op,
           "the type is {}; write i32 or i64", name(t));
  std::vector<int64_t> all, column;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = r + std::clamp(offset, -rows, columns),
                  from = upper ? std::max<int64_t>(0, at) : 0,
                  to = upper ? columns : std::min(columns, at + 1);
    for (int64_t c = from; c < to; ++c) {
      all.push_back(r);
      column.push_back(c);
    }
  }
  const int64_t count = std::ssize(all);
  all.insert(all.end(), column.begin(), column.end());
  return cast(DistTensor::from_global(Tensor::from({2, count}, all.data()),
                                      mesh, layout),
              t);
}

}  // namespace

DistTensor linspace(const DistTensor& start, const DistTensor& end, int64_t n,
                    const Placements& layout, DType t) {
  return cast(spaced("linspace", start, end, n, layout, !is_float(t)), t);
}

DistTensor linspace(double start, double end, int64_t n, const Mesh& mesh,
                    const Placements& layout, DType t) {
  return linspace(scalar(start, mesh), scalar(end, mesh), n, layout, t);
}

DistTensor logspace(const DistTensor& start, const DistTensor& end, int64_t n,
                    double base, const Placements& layout, DType t) {
  return cast(pow(base, spaced("logspace", start, end, n, layout,
                               !is_float(t) && n > 1)),
              t);
}

DistTensor logspace(double start, double end, int64_t n, const Mesh& mesh,
                    double base, const Placements& layout, DType t) {
  return logspace(scalar(start, mesh), scalar(end, mesh), n, base, layout, t);
}

DistTensor vander(const DistTensor& x, std::optional<int64_t> n) {
  check_defined("vander", x);
  const DistTensor column = unsqueeze(atleast_1d(x), -1);
  Shape shape = column.shape();
  const int64_t powers = n.value_or(shape[shape.size() - 2]);
  DT_CHECK(powers >= 2, "vander", "n is {}; write at least 2", powers);
  DT_CHECK(x.dtype() != DType::kBool, "vander",
           "{} has no powers; write cast(x, DType::kI64)",
           x.spec()->to_string());
  shape.back() = powers - 1;
  return cumprod(cat({ones_like(column), expand(column, shape)}, -1), -1);
}

DistTensor tril_indices(int64_t rows, int64_t columns, int64_t offset,
                        const Mesh& mesh, const Placements& layout, DType t) {
  return indices("tril_indices", rows, columns, offset, mesh, layout, t, false);
}

DistTensor triu_indices(int64_t rows, int64_t columns, int64_t offset,
                        const Mesh& mesh, const Placements& layout, DType t) {
  return indices("triu_indices", rows, columns, offset, mesh, layout, t, true);
}

std::vector<DistTensor> unravel_index(const DistTensor& indices,
                                      const Shape& shape) {
  check_defined("unravel_index", indices);
  DT_CHECK(indices.dtype() == DType::kI32 || indices.dtype() == DType::kI64,
           "unravel_index",
           "the indices are {}, but must be i32 or i64; write cast(indices, "
           "DType::kI64)",
           name(indices.dtype()));
  const bool empty = numel(indices.shape()) == 0;
  for (int64_t n : shape)
    DT_CHECK(n > 0 || (n == 0 && empty), "unravel_index",
             "a tensor of shape {} has no elements; write sizes of at least 1",
             to_string(shape));
  std::vector<DistTensor> out(static_cast<size_t>(shape.size()));
  DistTensor rest = cast(indices, DType::kI64);
  for (int d = shape.size() - 1; d >= 0; --d) {
    // A tensor, because a plain number would pass through a double.
    const int64_t size = std::max<int64_t>(1, shape[d]);
    const DistTensor n =
        DistTensor::from_global(Tensor::from({}, &size), indices.mesh(), {});
    out[static_cast<size_t>(d)] = remainder(rest, n);
    rest = floor_divide(rest, n);
  }
  return out;
}

}  // namespace dtensor
