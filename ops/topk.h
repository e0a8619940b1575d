// The largest elements along a dimension, and their indices.
#pragma once
#include <cstdint>

#include "dtensor/dist_tensor.h"

namespace dtensor {

struct TopK {
  DistTensor values, indices;  // best first; indices are i64
};

// The k largest (or smallest) elements along a dimension. If that is split, the
// ranks exchange k candidates each, never the rows. A NaN counts as largest. If
// elements are equal, the first ones are taken, in any layout. Gradients of the
// values go to the elements taken; the indices have none. Every rank of the
// mesh calls it. Throws Error if the dimension has fewer than k elements, or
// for bools.
TopK topk(const DistTensor&, int64_t k, int dim = -1, bool largest = true);

}  // namespace dtensor
