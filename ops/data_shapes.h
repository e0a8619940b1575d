// SPDX-License-Identifier: Apache-2.0
// Functions of which the values decide the result's shape: the places and the
// elements that a mask selects, distinct elements, and the rows of a table that
// a batch uses. Every rank of the mesh calls them, and waits for the number of
// elements. A dry run, which has no values, takes `dry_run_count` for it, or
// else the largest possible number. If the input is split, each rank writes the
// elements of its own part to their places in the result, which is then a
// partial sum. The input is not gathered.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// The indices of the nonzero elements in row-major order, as i64 [count,
// x.ndim()].
DistTensor nonzero(const DistTensor& x,
                   std::optional<int64_t> dry_run_count = {});
DistTensor argwhere(const DistTensor& x,
                    std::optional<int64_t> dry_run_count = {});
// The columns of nonzero(), one vector for each dimension: in torch also
// nonzero(condition, as_tuple=True). A scalar counts as a vector.
std::vector<DistTensor> where(const DistTensor& condition,
                              std::optional<int64_t> dry_run_count = {});

// The elements of x at which the mask (bool) is true, in row-major order, as a
// vector. x and the mask broadcast to one shape. -0.0 becomes 0.
DistTensor masked_select(const DistTensor& x, const DistTensor& mask,
                         std::optional<int64_t> dry_run_count = {});
// Returns x with the first elements of `source`, in row-major order, in the
// places where the mask is true. x and the mask broadcast to one shape. The
// source is looked up as by embedding(). Waits for nothing if it has as many
// elements as that shape. Throws Error if it has too few, or not x's type.
DistTensor masked_scatter(const DistTensor& x, const DistTensor& mask,
                          const DistTensor& source);

struct Unique {
  DistTensor values;
  DistTensor inverse;  // i64: where each element or slice of x is in `values`
  DistTensor counts;   // i64: how often each of the values occurs
};

// The distinct elements of x, smallest first; inverse has x's shape. With a
// dimension, the distinct slices along it, in the order of their elements.
// Every NaN is distinct. The elements are sorted twice; slices of m elements
// are compared in log2(m) more rounds of two sorts. Has no gradient. Throws
// Error if a slice is empty.
Unique unique(const DistTensor& x, std::optional<int> dim = {},
              std::optional<int64_t> dry_run_count = {});
// As unique(), but keeps the order, and drops only repetitions that follow each
// other. Sorts nothing.
Unique unique_consecutive(const DistTensor& x, std::optional<int> dim = {},
                          std::optional<int64_t> dry_run_count = {});

// ---- Sparse gradients ----
//
// A step that costs what the used rows of a table cost, whatever the table's
// size, as with torch's Embedding(sparse=True), EmbeddingBag(sparse=True) and
// SparseAdam:
//
//   const UsedRows used = used_rows(table, ids);
//   const DistTensor y = embedding_bag(used.rows, used.places);
//   const auto g = grad(loss(y), {used.rows});
//   optimizer.step(g, {.lr = 1e-3, .rows = {used.ids}});

struct UsedRows {
  // The distinct ids, smallest first, as i64 [u], replicated. The last one or
  // more are -1, so that u takes few values; u <= 9/8 (distinct ids + 1).
  DistTensor ids;
  // Row i is the table's row ids[i], or zeros for -1. A leaf of the autograd
  // graph, [u, h]: if the table wants a gradient, this is the tensor to take it
  // of. Its gradient has the spec rows_spec(table, u) (embedding.h).
  DistTensor rows;
  // Where each id is in `ids`: i64, in the shape and layout of the given ids.
  DistTensor places;
};
// Collects the rows of the table [v, h] at the ids (i32 or i64, in any shape),
// to be looked up in their place: embedding(table, ids) is embedding(used.rows,
// used.places), with the same values. Ids that equal `padding_idx` (negative:
// from the end) have the last place, a row of zeros that is no row of the
// table; pass padding_idx = -1 to embedding_bag().
//
// Sorts the ids twice, as unique() does. Each rank then looks up the rows that
// it stores; the table is never sent, nor gathered under gather_on_use(). For
// several batches (gradient accumulation), pass all their ids, and use slices
// of `places`. Call it outside of functions under checkpoint(), which would
// make another leaf. In a dry run, u is that of ids that all differ. Throws
// Error on every rank if an id is not a row of the table.
UsedRows used_rows(const DistTensor& table, const DistTensor& ids,
                   std::optional<int64_t> padding_idx = {});

}  // namespace dtensor
