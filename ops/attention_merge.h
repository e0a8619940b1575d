// SPDX-License-Identifier: Apache-2.0
// Merging the results that attention computes for one range of queries or keys
// at a time. Private to ops.
#pragma once
#include <vector>

#include "dtensor/ops/compute.h"
#include "dtensor/placement/region.h"

namespace dtensor::internal {

// A sum that is accumulated in the type of statistics (kernels::stat_of()). The
// memory of a part that was added may be overwritten.
struct Sum {
  Tensor total;
  void add(Compute&, const Tensor& part);
  // The sum converted to `type`, or zeros of this shape if nothing was added.
  Tensor as(DType type, const Shape& shape) const;
};

// Concatenates the sums for the ranges of a block of this shape,
// [b, t, heads, d].
Tensor joined(const std::vector<Sum>& parts, const IntervalList& ranges,
              const Shape& shape, DType type);

// The attention of a range of queries to the keys so far. add() adds the result
// for more keys, and may overwrite the memory of a part that was added. out
// [b, s, h, d] is the mean of the values under weights that sum to exp(lse);
// lse is [b, h, s].
struct Online {
  Tensor out, lse;
  void add(Compute&, const Tensor& part, const Tensor& part_lse);
};

// For a softmax whose keys several ranks hold: the share of rank `which`, which
// is exp(all[which]) divided by the sum of exp(all[i]), or 0 if there are no
// keys. all[i] is the lse of rank i's keys; `all` is [ranks, ...].
Tensor share_of_rank(Compute&, const Tensor& all, int64_t which);
// Multiplies out [b, s, h, d] by weight [b, h, s], in place.
void scale_rows(Compute&, const Tensor& out, const Tensor& weight);

// Compares two tensors of one shape element by element; the result is bool.
Tensor equal(Compute&, const Tensor& a, const Tensor& b);

}  // namespace dtensor::internal
