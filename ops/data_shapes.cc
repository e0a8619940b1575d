// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/data_shapes.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "dtensor/dist_tensor_impl.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/embedding_op.h"
#include "dtensor/ops/id_range.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/rows_record.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/scopes.h"

namespace dtensor {
namespace {

// The number of elements that `total` has, of at most `most`.
int64_t counted(const DistTensor& total, int64_t most,
                std::optional<int64_t> dry_run_count) {
  const auto n = total.item<int64_t>();
  return RankContext::current().dry_run ? dry_run_count.value_or(most) : n;
}

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
  int64_t count(std::optional<int64_t> dry_run_count) const {
    return counted(total, numel(at.shape()), dry_run_count);
  }
  DistTensor at, total;
};

// The index of each element of x in the flat tensor, in the layout of x, which
// is i64.
DistTensor flat_index(const DistTensor& x) {
  DistTensor index = full_like(x, 0);
  int64_t stride = 1;
  for (int d = x.ndim() - 1; d >= 0; --d) {
    Layout line;
    line.dims = {x.layout().dims[static_cast<size_t>(d)]};
    Shape shape = Shape::filled(x.ndim(), 1);
    shape[d] = x.size(d);
    index = index + reshape(arange(x.size(d), x.mesh(), line) * stride, shape);
    stride *= x.size(d);
  }
  return index;
}

// Element i of the result [n] is the element of x for which `at` is i. An
// element for which it is -1 is left out.
DistTensor placed(const DistTensor& x, const DistTensor& at, int64_t n) {
  if (x.dtype() == DType::kBool)
    return cast(placed(cast(x, DType::kI32), at, n), DType::kBool);
  return cast(put_slices(x, 0, at, n, false), x.dtype());
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
Groups equals(const char* op, const DistTensor& x) {
  const int64_t n = std::max<int64_t>(x.size(1), 1);
  DT_CHECK(n < int64_t{1} << 31, op,
           "{} elements or slices are too many; pass fewer than 2^31", n);
  const TopK s = sort(x, 1);
  const Groups sorted = begun_by(differs(s.values));
  // Moves them back to the order of x by another sort, so that they stay split.
  // An index has at most 31 bits, and so has a group's number.
  constexpr int64_t kLow = int64_t{1} << 32;
  const DistTensor back =
      sort(s.indices * kLow + sorted.number * 2 + sorted.first, 1).values;
  return {bitwise_right_shift(back & (kLow - 1), 1), eq(back & 1, 1)};
}

// `all` are the columns() of x, and g [1, n] has their groups.
Unique result(const DistTensor& x, std::optional<int> dim,
              const DistTensor& all, const Groups& g,
              std::optional<int64_t> dry_run_count) {
  const int64_t n = all.size(1);
  const DistTensor number = reshape(g.number, {n}),
                   at = where(reshape(g.first, {n}), number, -1);
  const int64_t count = counted(sum(g.first), n, dry_run_count);
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

// The next number with at most four significant bits. Tensors of equal sizes
// share decisions and plans; sizes that differ a little would need their own.
int64_t rounded_up(int64_t n) {
  const auto unit = static_cast<int64_t>(
      std::max<uint64_t>(std::bit_ceil(static_cast<uint64_t>(n)) / 16, 1));
  return (n + unit - 1) / unit * unit;
}

// The distinct ones of the ids [n] of rows of a table [v, h], as UsedRows::ids
// has them, and the place of each in these. With `padded`, ids of v are of no
// row, and have the last place.
struct Distinct {
  Distinct(const char* op, const DistTensor& ids, int64_t v, bool padded) {
    const int64_t n = ids.size(0);
    const Groups g = equals(op, reshape(ids, {1, n}));
    place = reshape(g.number, {n});
    DistTensor first = reshape(g.first, {n});
    const int64_t count = counted(sum(first), std::min(n, v), {}),
                  u = rounded_up(count + 1);
    if (padded) {
      const DistTensor is_row = lt(ids, v);
      place = where(is_row, place, u - 1);
      first = logical_and(first, is_row);
    }
    used = (placed(ids + 1, where(first, place, -1), u) - 1).redistribute("");
  }
  DistTensor used, place;
};

// RowsRecord::sum.
SomeRows sum_of_rows(const std::vector<SomeRows>& gradients) {
  const DistTensor& table = gradients[0].table;
  const int64_t v = table.size(0);
  std::vector<DistTensor> ids, rows;
  for (const SomeRows& g : gradients)
    ids.push_back(g.ids), rows.push_back(g.rows);
  const DistTensor all = cat(ids, 0);
  const Distinct d("used_rows", where(lt(all, 0), v, all), v, true);
  const int64_t u = d.used.size(0);
  return {table, d.used,
          put_slices(cat(rows, 0), 0, d.place, u, false)
              .redistribute(rows_spec(table, u)->layout())};
}

}  // namespace

DistTensor nonzero(const DistTensor& x, std::optional<int64_t> dry_run_count) {
  check_defined("nonzero", x);
  const DistTensor mask = cast(atleast_1d(x), DType::kBool);
  const Places p(mask);
  const int64_t count = p.count(dry_run_count);
  if (x.ndim() == 0) return zeros({count, 0}, x.mesh(), {}, DType::kI64);
  // The indices in the flat tensor, and then those of each dimension.
  DistTensor at = placed(flat_index(p.at), p.at, count);
  std::vector<DistTensor> index(static_cast<size_t>(x.ndim()));
  for (int d = x.ndim() - 1; d > 0; --d) {
    const int64_t n = std::max<int64_t>(x.size(d), 1);
    const DistTensor rest = floor_divide(at, n);
    index[static_cast<size_t>(d)] = at - rest * n;
    at = rest;
  }
  index[0] = at;
  return stack(index, 1);
}

DistTensor argwhere(const DistTensor& x, std::optional<int64_t> dry_run_count) {
  return nonzero(x, dry_run_count);
}

std::vector<DistTensor> where(const DistTensor& condition,
                              std::optional<int64_t> dry_run_count) {
  check_defined("where", condition);
  return unbind(nonzero(atleast_1d(condition), dry_run_count), 1);
}

DistTensor masked_select(const DistTensor& x, const DistTensor& mask,
                         std::optional<int64_t> dry_run_count) {
  const std::vector<DistTensor> wide = with_mask("masked_select", x, mask);
  const Places p(wide[1]);
  return placed(wide[0], p.at, p.count(dry_run_count));
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
  const Places p(wide[1]);
  if (n < numel(wide[1].shape())) {
    const int64_t count = p.count(n);
    DT_CHECK(count <= n, "masked_scatter",
             "the mask is true in {} places, but the source {} has only {} "
             "elements; pass one for each place",
             count, source.spec()->to_string(), n);
  }
  const DistTensor y =
      where(wide[1], take_slices(flatten(source), 0, p.at, false), wide[0]);
  return x.ndim() == 0 && mask.ndim() == 0 ? reshape(y, {}) : y;
}

Unique unique(const DistTensor& x, std::optional<int> dim,
              std::optional<int64_t> dry_run_count) {
  const DistTensor all = columns("unique", x, dim);
  const int64_t n = all.size(1);
  Groups g = equals("unique", all);
  // Replaces the numbers of two elements of a slice by that of the pair, until
  // each slice has one number.
  for (int64_t m = all.size(0); m > 1; m = g.number.size(0)) {
    const DistTensor pairs =
        reshape(slice(g.number, 0, 0, m / 2 * 2), {m / 2, 2, n});
    g = equals("unique", cat({select(pairs, 1, 0) * n + select(pairs, 1, 1),
                              slice(g.number, 0, m / 2 * 2, m)},
                             0));
  }
  return result(x, dim, all, g, dry_run_count);
}

Unique unique_consecutive(const DistTensor& x, std::optional<int> dim,
                          std::optional<int64_t> dry_run_count) {
  const DistTensor all = columns("unique_consecutive", x, dim);
  return result(x, dim, all, begun_by(any(differs(all), {0}, true)),
                dry_run_count);
}

UsedRows used_rows(const DistTensor& table, const DistTensor& ids,
                   std::optional<int64_t> padding_idx) {
  constexpr const char* kOp = "used_rows";
  check_defined(kOp, {table, ids});
  DT_CHECK(table.ndim() == 2 && is_float(table.dtype()), kOp,
           "the table is {}; pass a matrix of a float type",
           table.spec()->to_string());
  DT_CHECK(ids.dtype() == DType::kI32 || ids.dtype() == DType::kI64, kOp,
           "the ids are {}, but must be i32 or i64; write cast(ids, "
           "DType::kI64)",
           name(ids.dtype()));
  const int64_t v = table.size(0), n = numel(ids.shape());
  DT_CHECK(!padding_idx || (*padding_idx >= -v && *padding_idx < v), kOp,
           "padding_idx is {}; write an id in [{}, {})", *padding_idx, -v, v);
  const NoGrad no_grad;
  RankContext& context = RankContext::current();
  Layout settled = ids.layout();
  settled.partials.clear();
  const DistTensor known = ids.redistribute(settled);
  if (known.here())
    check_ids_in(context, kOp, known.local().to_contiguous(), *known.spec(), v,
                 {}, [v](int64_t id) {
                   return fmt::format(
                       "id {} is not in [0, {}), the rows of the table; pass "
                       "ids in that range",
                       id, v);
                 });
  // The padding comes after all rows, so that it changes no other place.
  DistTensor flat = reshape(cast(known, DType::kI64), {n});
  if (padding_idx)
    flat = where(ne(flat, *padding_idx + (*padding_idx < 0 ? v : 0)), flat, v);
  const auto [used, place] = Distinct(kOp, flat, v, padding_idx.has_value());
  // Each rank reads what it stores: the table stays, and is not gathered.
  const DistTensor stored =
      DistTensor::wrap(table.impl()->part(), table.spec()).as_parameter();
  DistTensor rows = embedding(stored, used, {.zeros_outside = true});
  rows.set_grad_layout(rows_spec(table, used.size(0))->layout());
  if (table.requires_grad()) rows.set_requires_grad();
  if (RowsRecord* const record = RowsRecord::current()) {
    record->calls.push_back({table, used, rows});
    record->sum = sum_of_rows;
  }
  return {used, rows, reshape(place, ids.shape()).redistribute(settled)};
}

}  // namespace dtensor
