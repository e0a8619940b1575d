// The largest elements along a dimension, and where they are.
#pragma once
#include <cstdint>
#include <vector>

#include "dtensor/ops/op.h"

namespace dtensor {

struct TopK {
  DistTensor values, indices;  // the best first; indices are i64
};

// The k largest (or smallest) along a dimension, which may be split: the ranks
// then exchange k candidates each, never the rows. A NaN is larger than all
// else; of equal elements the first ones are taken, in any layout. The gradient
// of the values goes to where they were; the indices have none. Throws Error
// when the dimension has fewer than k, or for bools.
TopK topk(const DistTensor&, int64_t k, int dim = -1, bool largest = true);

// For all_ops().
std::vector<const Op*> topk_ops();

}  // namespace dtensor
