// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/differences.h"

#include <algorithm>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/vectors.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"

namespace dtensor {
namespace {

// The derivative of x along dimension d, whose elements have the distances
// `gaps`, one less than there are elements, or all the distance h if `gaps` is
// undefined.
DistTensor derivative(const DistTensor& x, int d, const DistTensor& gaps,
                      double h, int edge_order) {
  const int64_t n = x.size(d);
  const auto part = [d](const DistTensor& t, int64_t from, int64_t count) {
    return narrow(t, d, from, count);
  };
  const bool even = !gaps.defined();
  const DistTensor rise = diff(x, 1, d);
  const DistTensor slope = even ? div(rise, h) : div(rise, gaps);
  // The line through the two slopes next to an end, continued to that end.
  const auto end = [&](int64_t at, int64_t next) {
    const DistTensor s = part(slope, at, 1);
    if (edge_order == 1) return s;
    const DistTensor change = sub(s, part(slope, next, 1));
    if (even) return add(s, mul(change, 0.5));
    const DistTensor gap = part(gaps, at, 1);
    return add(s, mul(change, div(gap, add(gap, part(gaps, next, 1)))));
  };
  DistTensor inside;
  if (even) {
    inside = div(sub(part(x, 2, n - 2), part(x, 0, n - 2)), 2 * h);
  } else {
    // The slope on each side has the gap on the other side as its weight.
    const DistTensor left = part(gaps, 0, n - 2), right = part(gaps, 1, n - 2);
    inside = div(add(mul(part(slope, 0, n - 2), right),
                     mul(part(slope, 1, n - 2), left)),
                 add(left, right));
  }
  return cat({end(0, 1), inside, end(n - 2, n - 3)}, d);
}

// The dimensions of a call of gradient(), all if the list is empty. Throws
// Error unless derivative() can be called for them, and if `given`, the length
// of a list, is not their number.
std::vector<int> checked(const DistTensor& x, std::vector<int> dims,
                         int edge_order, size_t given, std::string_view what) {
  DT_CHECK(x.dtype() != DType::kBool, "gradient",
           "{} has no differences; write cast(x, DType::kF32)",
           x.spec()->to_string());
  DT_CHECK(edge_order == 1 || edge_order == 2, "gradient",
           "edge_order is {}; write 1 or 2", edge_order);
  if (dims.empty())
    for (int d = 0; d < x.ndim(); ++d) dims.push_back(d);
  DT_CHECK(given == dims.size(), "gradient",
           "the list of {} has length {}, but there are {} dimensions; write "
           "one for each",
           what, given, dims.size());
  for (auto d = dims.begin(); d != dims.end(); ++d) {
    *d = normalize_dim(*d, x.ndim(), "gradient");
    DT_CHECK(std::find(dims.begin(), d, *d) == d, "gradient",
             "dimension {} of {} is named twice; name it once", *d,
             x.spec()->to_string());
    DT_CHECK(x.size(*d) > edge_order, "gradient",
             "dimension {} of {} has fewer than {} elements, which edge_order "
             "{} needs; pass more elements",
             *d, x.spec()->to_string(), edge_order + 1, edge_order);
  }
  return dims;
}

// Dimension `dim` of y, counted from the first. Throws Error unless y can be
// integrated along it.
int integrated(std::string_view op, const DistTensor& y, int dim) {
  DT_CHECK(y.dtype() != DType::kBool, op,
           "{} has no integral; write cast(y, DType::kF32)",
           y.spec()->to_string());
  return normalize_dim(dim, y.ndim(), op);
}

// y[i] + y[i + 1] along dimension d.
DistTensor pairs(const DistTensor& y, int d) {
  const int64_t n = y.size(d);
  return add(slice(y, d, 0, std::max<int64_t>(0, n - 1)), slice(y, d, 1, n));
}

// The distances of the positions x, with as many dimensions as y.
DistTensor gaps_of(std::string_view op, const DistTensor& y,
                   const DistTensor& x, int d) {
  DT_CHECK(x.dtype() != DType::kBool, op,
           "the positions are {}; write cast(x, DType::kF32)",
           x.spec()->to_string());
  DistTensor wide = x;
  if (x.ndim() == 1) {
    wide = along_dim(x, y.ndim(), d);
  } else {
    while (wide.ndim() < y.ndim()) wide = unsqueeze(wide, 0);
  }
  DT_CHECK(wide.ndim() == y.ndim() && wide.size(d) == y.size(d), op,
           "the positions {} do not fit {}; pass one position for each element "
           "along dimension {}",
           x.spec()->to_string(), y.spec()->to_string(), d);
  return diff(wide, 1, d);
}

}  // namespace

DistTensor diff(const DistTensor& x, int64_t n, int dim,
                const DistTensor& prepend, const DistTensor& append) {
  check_defined("diff", x);
  const int d = normalize_dim(dim, x.ndim(), "diff");
  DT_CHECK(n >= 0, "diff", "n is {}; write 0 or more", n);
  if (n == 0) return alias(x);
  std::vector<DistTensor> pieces;
  DType type = x.dtype();
  for (const DistTensor& piece : {prepend, x, append})
    if (piece.defined()) {
      pieces.push_back(piece);
      type = promote(type, piece.dtype());
    }
  for (DistTensor& piece : pieces) piece = cast(piece, type);
  DistTensor y = cat(pieces, d);
  for (; n > 0 && y.size(d) > 0; --n) {
    const DistTensor upper = slice(y, d, 1, y.size(d)),
                     lower = narrow(y, d, 0, y.size(d) - 1);
    y = type == DType::kBool ? ne(upper, lower) : sub(upper, lower);
  }
  return y;
}

std::vector<DistTensor> gradient(const DistTensor& x, double spacing,
                                 const std::vector<int>& dims, int edge_order) {
  check_defined("gradient", x);
  const size_t n = dims.empty() ? static_cast<size_t>(x.ndim()) : dims.size();
  return gradient(x, std::vector<double>(n, spacing), dims, edge_order);
}

std::vector<DistTensor> gradient(const DistTensor& x,
                                 const std::vector<double>& spacing,
                                 const std::vector<int>& dims, int edge_order) {
  check_defined("gradient", x);
  const auto all = checked(x, dims, edge_order, spacing.size(), "spacings");
  std::vector<DistTensor> out;
  for (size_t i = 0; i < all.size(); ++i)
    out.push_back(derivative(x, all[i], {}, spacing[i], edge_order));
  return out;
}

std::vector<DistTensor> gradient(const DistTensor& x, TensorList coordinates,
                                 const std::vector<int>& dims, int edge_order) {
  check_defined("gradient", x);
  check_defined("gradient", coordinates);
  const auto all =
      checked(x, dims, edge_order, coordinates.size(), "coordinates");
  for (size_t i = 0; i < all.size(); ++i)
    DT_CHECK(coordinates[i].shape() == Shape{x.size(all[i])}, "gradient",
             "the coordinates {} do not fit dimension {} of {}; pass a vector "
             "with one position for each element",
             coordinates[i].spec()->to_string(), all[i], x.spec()->to_string());
  std::vector<DistTensor> out;
  for (size_t i = 0; i < all.size(); ++i)
    out.push_back(derivative(x, all[i],
                             along_dim(diff(coordinates[i]), x.ndim(), all[i]),
                             0, edge_order));
  return out;
}

DistTensor trapezoid(const DistTensor& y, double dx, int dim) {
  check_defined("trapezoid", y);
  const int d = integrated("trapezoid", y, dim);
  // The sum without half of both ends needs no neighbours.
  const int64_t n = y.size(d);
  const DistTensor ends =
      add(sum(slice(y, d, 0, 1), {d}), sum(slice(y, d, n - 1, n), {d}));
  return mul(sub(sum(y, {d}), mul(ends, 0.5)), dx);
}

DistTensor trapezoid(const DistTensor& y, const DistTensor& x, int dim) {
  check_defined("trapezoid", {y, x});
  const int d = integrated("trapezoid", y, dim);
  const DistTensor gaps = gaps_of("trapezoid", y, x, d);
  return div(sum(mul(pairs(y, d), gaps), {d}), 2.0);
}

DistTensor cumulative_trapezoid(const DistTensor& y, double dx, int dim) {
  check_defined("cumulative_trapezoid", y);
  const int d = integrated("cumulative_trapezoid", y, dim);
  return mul(cumsum(pairs(y, d), d), dx / 2);
}

DistTensor cumulative_trapezoid(const DistTensor& y, const DistTensor& x,
                                int dim) {
  check_defined("cumulative_trapezoid", {y, x});
  const int d = integrated("cumulative_trapezoid", y, dim);
  const DistTensor gaps = gaps_of("cumulative_trapezoid", y, x, d);
  return div(cumsum(mul(pairs(y, d), gaps), d), 2.0);
}

}  // namespace dtensor
