// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/data_shapes.h"

#include <algorithm>
#include <utility>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/embedding_op.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

struct Sums {
  DistTensor before, total;
};

// For each element of x, the sum of those before it in row-major order, and the
// sum of all. x has at least one dimension, and keeps its layout.
Sums sums(const DistTensor& x) {
  DistTensor before, block = x;
  for (int d = x.ndim() - 1; d >= 0; --d) {
    const DistTensor more = cumsum(block, d) - block;
    before = before.defined() ? before + more : more;
    block = sum(block, {d}, true);
  }
  return {before, block};
}

// For each element of a mask, its place among the elements that are true, or
// -1; and their number.
struct Places {
  explicit Places(const DistTensor& mask) {
    const Sums s = sums(cast(mask, DType::kI64));
    at = where(mask, s.before, -1);
    total = s.total;
  }
  int64_t count() const { return total.item<int64_t>(); }
  DistTensor at, total;
};

DistTensor as_column(const DistTensor& x) {
  Shape shape = x.shape();
  shape.push_back(1);
  return reshape(x, shape);
}

// Element i of the result [n] is the element of x for which `at` is i. An
// element for which it is -1 is left out.
DistTensor placed(const DistTensor& x, const DistTensor& at, int64_t n) {
  if (x.dtype() == DType::kBool)
    return cast(placed(cast(x, DType::kI32), at, n), DType::kBool);
  return cast(reshape(put_slices(as_column(x), 0, at, n, false), {n}),
              x.dtype());
}

// Both as tensors of the shape to which they broadcast, which has at least one
// dimension.
std::vector<DistTensor> with_mask(const char* op, const DistTensor& x,
                                  const DistTensor& mask) {
  check_defined(op, {x, mask});
  DT_CHECK(mask.dtype() == DType::kBool, op,
           "the mask {} is not bool; write ne(mask, 0)",
           mask.spec()->to_string());
  return broadcast_tensors({atleast_1d(x), mask});
}

// The elements of x [1, n], or its slices along `dim` as columns [m, n].
DistTensor columns(const char* op, const DistTensor& x,
                   std::optional<int> dim) {
  check_defined(op, x);
  const DistTensor y =
      x.dtype() == DType::kBool ? cast(x, DType::kI32) : x.detach();
  if (!dim) return reshape(y, {1, numel(x.shape())});
  const int d = normalize_dim(*dim, x.ndim(), op);
  int64_t m = 1;
  for (int i = 0; i < x.ndim(); ++i) m *= i == d ? 1 : x.size(i);
  DT_CHECK(m > 0, op,
           "the slices of {} along dimension {} are empty; pass a tensor whose "
           "other dimensions have elements",
           x.spec()->to_string(), d);
  return reshape(movedim(y, {d}, {-1}), {m, x.size(d)});
}

// The elements of each row [m, n] in groups: the number of the group in which
// an element is, and whether it stands for the group.
struct Groups {
  DistTensor number, first;
};

// For rows [m, n]: whether each element differs from the one before it.
DistTensor differs(const DistTensor& x) {
  const int64_t n = x.size(1);
  if (n == 0) return ne(x, x);
  return cat({full({x.size(0), 1}, 1, x.mesh(), {}, DType::kBool),
              ne(slice(x, 1, 1, n), slice(x, 1, 0, n - 1))},
             1);
}

// A group begins at each element that has the flag `first`.
Groups begun_by(const DistTensor& first) {
  return {cumsum(first, 1) - 1, first};
}

// Equal elements are a group. Groups are in the order of their elements.
Groups equals(const DistTensor& x) {
  const int64_t n = std::max<int64_t>(x.size(1), 1);
  const TopK s = sort(x, 1);
  const Groups sorted = begun_by(differs(s.values));
  // Moves them back to the order of x by another sort, so that they stay split.
  const DistTensor back =
      sort((s.indices * n + sorted.number) * 2 + sorted.first, 1).values;
  return {remainder(floor_divide(back, 2), n), eq(remainder(back, 2), 1)};
}

// `all` are the columns() of x, and g [1, n] has their groups.
Unique result(const DistTensor& x, std::optional<int> dim,
              const DistTensor& all, const Groups& g) {
  const int64_t n = all.size(1);
  const DistTensor number = reshape(g.number, {n}),
                   at = where(reshape(g.first, {n}), number, -1);
  const int64_t count = sum(g.first).item<int64_t>();
  DistTensor values = cast(
      transpose(put_slices(transpose(all), 0, at, count, false)), x.dtype());
  Shape shape = {count};
  if (dim) {
    const int d = normalize_dim(*dim, x.ndim(), "unique");
    shape = x.shape();
    shape.erase(d);
    shape.push_back(count);
    values = movedim(reshape(values, shape), {-1}, {d});
  }
  return {dim ? values : reshape(values, shape),
          dim ? number : reshape(number, x.shape()),
          placed(full_like(number, 1), number, count)};
}

}  // namespace

DistTensor nonzero(const DistTensor& x) {
  check_defined("nonzero", x);
  const DistTensor mask = cast(atleast_1d(x), DType::kBool);
  const Places p(mask);
  const int64_t count = p.count();
  if (x.ndim() == 0) return zeros({count, 0}, x.mesh(), {}, DType::kI64);
  // The indices in the flat tensor, and then those of each dimension.
  DistTensor at = placed(sums(full_like(p.at, 1)).before, p.at, count);
  std::vector<DistTensor> index;
  for (int d = x.ndim() - 1; d >= 0; --d) {
    const int64_t n = std::max<int64_t>(x.size(d), 1);
    index.insert(index.begin(), remainder(at, n));
    at = floor_divide(at, n);
  }
  return stack(index, 1);
}

DistTensor argwhere(const DistTensor& x) { return nonzero(x); }

std::vector<DistTensor> where(const DistTensor& condition) {
  check_defined("where", condition);
  return unbind(nonzero(atleast_1d(condition)), 1);
}

DistTensor masked_select(const DistTensor& x, const DistTensor& mask) {
  const std::vector<DistTensor> wide = with_mask("masked_select", x, mask);
  const Places p(wide[1]);
  return placed(wide[0], p.at, p.count());
}

DistTensor masked_scatter(const DistTensor& x, const DistTensor& mask,
                          const DistTensor& source) {
  const std::vector<DistTensor> wide = with_mask("masked_scatter", x, mask);
  check_defined("masked_scatter", source);
  const int64_t n = numel(source.shape());
  DT_CHECK(source.dtype() == x.dtype(), "masked_scatter",
           "the source is {}, but the tensor is {}; write cast(source, "
           "x.dtype())",
           name(source.dtype()), name(x.dtype()));
  if (x.dtype() == DType::kBool)
    return cast(
        masked_scatter(cast(x, DType::kI32), mask, cast(source, DType::kI32)),
        DType::kBool);
  const Places p(wide[1]);
  if (n < numel(wide[1].shape())) {
    const int64_t count = p.count();
    DT_CHECK(count <= n, "masked_scatter",
             "the mask is true in {} places, but the source {} has only {} "
             "elements; pass one for each place",
             count, source.spec()->to_string(), n);
  }
  const DistTensor values =
      embedding(reshape(source, {n, 1}), p.at, {.zeros_outside = true});
  const DistTensor y =
      where(wide[1], reshape(values, wide[0].shape()), wide[0]);
  return x.ndim() == 0 && mask.ndim() == 0 ? reshape(y, {}) : y;
}

Unique unique(const DistTensor& x, std::optional<int> dim) {
  const DistTensor all = columns("unique", x, dim);
  const int64_t n = all.size(1);
  DT_CHECK(n < int64_t{1} << 31, "unique",
           "{} elements or slices are too many; pass fewer than 2^31", n);
  Groups g = equals(all);
  // Replaces the numbers of two elements of a slice by that of the pair, until
  // each slice has one number.
  for (int64_t m = all.size(0); m > 1; m = g.number.size(0)) {
    const DistTensor pairs =
        reshape(slice(g.number, 0, 0, m / 2 * 2), {m / 2, 2, n});
    g = equals(cat({select(pairs, 1, 0) * n + select(pairs, 1, 1),
                    slice(g.number, 0, m / 2 * 2, m)},
                   0));
  }
  return result(x, dim, all, g);
}

Unique unique_consecutive(const DistTensor& x, std::optional<int> dim) {
  const DistTensor all = columns("unique_consecutive", x, dim);
  return result(x, dim, all, begun_by(any(differs(all), {0}, true)));
}

}  // namespace dtensor
