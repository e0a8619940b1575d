// Putting together what attention computes of one range of queries or keys
// after the other. Private to ops.
#pragma once
#include <vector>

#include "dtensor/ops/compute.h"
#include "dtensor/placement/region.h"

namespace dtensor::internal {

// A sum that is added up in the type of statistics. What is added is its own
// from then on.
struct Sum {
  Tensor total;
  void add(Compute&, const Tensor& part);
  // As `type`, or zeros of that shape.
  Tensor as(DType type, const Shape& shape) const;
};

// The sums of the ranges of a block [b, t, heads, d], one after the other.
Tensor joined(const std::vector<Sum>& parts, const IntervalList& ranges,
              const Shape& shape, DType type);

// What some keys give a range of queries, merged with what others give: out
// [b, s, h, d] is the mean of the values under weights whose sum is exp(lse),
// lse [b, h, s]. What is added is its own from then on.
struct Online {
  Tensor out, lse;
  void add(Compute&, const Tensor& part, const Tensor& part_lse);
};

// Of two tensors of one shape, element by element: bool.
Tensor equal(Compute&, const Tensor& a, const Tensor& b);

}  // namespace dtensor::internal
