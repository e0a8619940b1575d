// SPDX-License-Identifier: Apache-2.0
// Merging the results that attention computes for one range of queries or keys
// at a time. Private to ops.
#pragma once
#include <vector>

#include "dtensor/ops/compute.h"
#include "dtensor/placement/region.h"

namespace dtensor::internal {

// A sum that is accumulated in the type of statistics (kernels::stat_of()). It
// may overwrite a part that was added.
struct Sum {
  Tensor total;
  void add(Compute&, const Tensor& part);
  // The sum converted to `type`, or zeros of this shape if nothing was added.
  Tensor as(DType type, const Shape& shape) const;
};

// Concatenates the sums of the ranges of a block [b, t, heads, d].
Tensor joined(const std::vector<Sum>& parts, const IntervalList& ranges,
              const Shape& shape, DType type);

// The result of some keys for a range of queries, which more keys can be added
// to. out [b, s, h, d] is the mean of the values under weights that sum to
// exp(lse); lse is [b, h, s]. It may overwrite a part that was added.
struct Online {
  Tensor out, lse;
  void add(Compute&, const Tensor& part, const Tensor& part_lse);
};

// The share that a rank has of a softmax whose keys several ranks hold:
// exp(all[which]) over the sum of exp(all[i]), or 0 if there are no keys. all
// [ranks, ...] are the lse of each rank's keys.
Tensor share_of_rank(Compute&, const Tensor& all, int64_t which);
// out [b, s, h, d] times weight [b, h, s], in place.
void scale_rows(Compute&, const Tensor& out, const Tensor& weight);

// Compares two tensors of one shape element by element; the result is bool.
Tensor equal(Compute&, const Tensor& a, const Tensor& b);

}  // namespace dtensor::internal
