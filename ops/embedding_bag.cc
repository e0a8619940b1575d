// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "dtensor/ops/by_index.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/embedding_op.h"
#include "dtensor/ops/exact.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

void check_bags(const DistTensor& table, const DistTensor& ids,
                const EmbeddingBagOptions& o) {
  constexpr const char* kOp = "embedding_bag";
  check_defined(kOp, {table, ids});
  const DistTensor &offsets = o.offsets, &weights = o.per_sample_weights;
  DT_CHECK(table.ndim() == 2 && is_float(table.dtype()), kOp,
           "the table is {}; pass a matrix of a float type",
           table.spec()->to_string());
  DT_CHECK(ids.ndim() == (offsets.defined() ? 1 : 2), kOp,
           "the ids are {}; pass a matrix with a bag in each row, or a vector "
           "and the offsets of the bags",
           ids.spec()->to_string());
  if (offsets.defined())
    DT_CHECK(offsets.ndim() == 1 && offsets.size(0) >= o.include_last_offset,
             kOp, "the offsets are {}; pass a vector{}",
             offsets.spec()->to_string(),
             o.include_last_offset ? " with at least one element" : "");
  if (weights.defined())
    DT_CHECK(o.mode == BagMode::kSum && weights.shape() == ids.shape() &&
                 weights.dtype() == table.dtype(),
             kOp,
             "the weights are {}; pass weights of {} and of the ids' shape {}, "
             "and only for kSum",
             weights.spec()->to_string(), name(table.dtype()),
             to_string(ids.shape()));
  if (o.padding_idx)
    DT_CHECK(*o.padding_idx >= -table.size(0) && *o.padding_idx < table.size(0),
             kOp, "padding_idx is {}; write an id in [{}, {})", *o.padding_idx,
             -table.size(0), table.size(0));
}

// The bags: the rows of a matrix of ids, or, if `of_id` is defined, the ids of
// a vector that have the same number in it.
struct Bags {
  // The sums over the bags of t [ids...] or [ids..., h].
  DistTensor sum(const DistTensor& t) const {
    if (!of_id.defined()) return dtensor::sum(t, {1});
    return index_add(filled(t, 0, t.dtype()), 0, of_id, t);
  }
  // For rows [ids..., h], the first of the largest elements of each bag, as
  // [count, h]. The bags have elements, or the result does not count.
  DistTensor max(const DistTensor& rows) const {
    if (!of_id.defined())
      return squeeze(gather(rows, 1, argmax(rows.detach(), 1, true)), 1);
    const int64_t n = rows.size(0);
    const DistTensor x = rows.detach();
    const DistTensor best = index_reduce(filled(x, -kInf, x.dtype()), 0, of_id,
                                         x, IndexReduction::kAmax);
    const DistTensor wins =
        logical_or(eq(x, index_select(best, 0, of_id)), isnan(x));
    const DistTensor place = reshape(arange(n, x.mesh()), {n, 1}),
                     none = filled(x, static_cast<double>(n - 1), DType::kI64);
    return gather(rows, 0,
                  index_reduce(none, 0, of_id, where(wins, place, n - 1),
                               IndexReduction::kAmin));
  }
  // A tensor for the results of sum(t), with this value everywhere.
  DistTensor filled(const DistTensor& t, double value, DType type) const {
    Shape shape = t.shape();
    shape[0] = count;
    return full(shape, value, t.mesh(), {}, type);
  }

  int64_t count;
  DistTensor of_id;
};

Bags bags_of(const DistTensor& ids, const EmbeddingBagOptions& o) {
  if (!o.offsets.defined()) return {ids.size(0), {}};
  const int64_t n = ids.size(0),
                count = o.offsets.size(0) - o.include_last_offset;
  // At each position, the number of bags that begin there.
  const DistTensor begin = narrow(o.offsets, 0, 0, count);
  const DistTensor begins =
      index_add(full({n + 1}, 0, ids.mesh(), {}, DType::kI64), 0, begin,
                cast(ones_like(begin), DType::kI64));
  return {count, cumsum(narrow(begins, 0, 0, n), 0) - 1};
}

}  // namespace

DistTensor embedding_bag(const DistTensor& table, const DistTensor& ids,
                         const EmbeddingBagOptions& o) {
  check_bags(table, ids, o);
  // All bags of a matrix are as large.
  const int64_t size = ids.size(-1);
  if (o.mode != BagMode::kMax && !o.offsets.defined() && !o.padding_idx &&
      !o.per_sample_weights.defined() && size > 0 && has_bags(table.dtype()) &&
      !reproducible(table.dtype())) {
    const DistTensor sums = bag_sums(table, ids);
    return o.mode == BagMode::kMean ? sums / size : sums;
  }
  const Bags bags = bags_of(ids, o);
  const DistTensor rows = embedding(table, ids);
  // Whether an id counts; undefined if all do.
  DistTensor counts;
  if (o.padding_idx)
    counts = ne(ids, *o.padding_idx + (*o.padding_idx < 0 ? table.size(0) : 0));
  const auto without = [&](double value) {
    return counts.defined() ? where(unsqueeze(counts, -1), rows, value) : rows;
  };
  if (o.mode == BagMode::kSum)
    return bags.sum(o.per_sample_weights.defined()
                        ? without(0) * unsqueeze(o.per_sample_weights, -1)
                        : without(0));
  if (o.mode == BagMode::kMean && ids.ndim() == 2 && !counts.defined())
    return bags.sum(rows) / std::max<int64_t>(1, size);
  const DistTensor number =
      unsqueeze(bags.sum(counts.defined() ? cast(counts, DType::kI64)
                                          : cast(ones_like(ids), DType::kI64)),
                -1);
  if (o.mode == BagMode::kMean)
    return bags.sum(without(0)) / clamp_min(number, 1);
  if (numel(ids.shape()) == 0) return bags.sum(rows);
  return where(eq(number, 0), 0, bags.max(without(-kInf)));
}

}  // namespace dtensor
