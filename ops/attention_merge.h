// SPDX-License-Identifier: Apache-2.0
// Merging the results that attention computes for one range of queries or keys
// at a time. Private to ops.
#pragma once
#include <vector>

#include "dtensor/ops/compute.h"
#include "dtensor/placement/region.h"

namespace dtensor::internal {

// A sum that is accumulated in f32, or in f64 for parts in f64
// (kernels::stat_of()). add() may keep the memory of `part`, which later calls
// then overwrite, so the caller must not use `part` afterwards.
struct Sum {
  Tensor total;
  void add(Compute&, const Tensor& part);
  // The sum converted to `type`, or zeros of this shape if nothing was added.
  Tensor as(DType type, const Shape& shape) const;
};

// Concatenates the sums along dimension 1 of a tensor of this shape,
// [b, t, heads, d]. parts[i] is the sum for the indices in ranges[i].
Tensor joined(const std::vector<Sum>& parts, const IntervalList& ranges,
              const Shape& shape, DType type);

// The attention of a range of queries to the keys so far. out [b, s, h, d] is
// the mean of the values, weighted by the exponentials of the scores; lse [b,
// h, s] is the log of the sum of these exponentials. add() merges the result
// for more keys; the caller must not use `part` afterwards.
struct Online {
  Tensor out, lse;
  void add(Compute&, const Tensor& part, const Tensor& part_lse);
};

// Returns exp(all[which]) / sum_i exp(all[i]), or 0 where all[i] is -inf for
// every i. all[i] is the lse of the keys that rank i holds; `all` is [ranks,
// ...]. The result is the weight of the attention to rank `which`'s keys in the
// attention to the keys of all ranks.
Tensor share_of_rank(Compute&, const Tensor& all, int64_t which);
// Multiplies out [b, s, h, d] by weight [b, h, s], in place.
void scale_rows(Compute&, const Tensor& out, const Tensor& weight);

// Compares two tensors of one shape element by element; the result is bool.
Tensor equal(Compute&, const Tensor& a, const Tensor& b);

}  // namespace dtensor::internal
