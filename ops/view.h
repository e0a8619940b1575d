// Shapes and windows. None of these sends anything, unless it says so.
#pragma once
#include <vector>

#include "ops/op.h"

namespace dtensor {

// The same elements in another shape; one size may be -1. Throws Error when
// the layout cannot be said of the new shape, naming the redistribute that
// helps.
DistTensor view(const DistTensor&, const Shape&);
// As view, but redistributes where it must. Collective then.
DistTensor reshape(const DistTensor&, const Shape&);
DistTensor permute(const DistTensor&, const std::vector<int>& order);
DistTensor transpose(const DistTensor&, int a, int b);
DistTensor squeeze(const DistTensor&, int dim);
DistTensor unsqueeze(const DistTensor&, int dim);
// Dimensions of size 1 repeated; new ones in front.
DistTensor expand(const DistTensor&, const Shape&);
// Indices [lo, hi) of a dimension, both clamped as in Python; every rank keeps
// what it had. A step other than 1 gathers a split dimension.
DistTensor slice(const DistTensor&, int dim, int64_t lo, int64_t hi,
                 int64_t step = 1);
// One index of a dimension, which goes away.
DistTensor select(const DistTensor&, int dim, int64_t index);
// End to end along a dimension, gathered where it is split.
DistTensor cat(const std::vector<DistTensor>&, int dim = 0);
// Consecutive pieces of these sizes.
std::vector<DistTensor> split(const DistTensor&,
                              const std::vector<int64_t>& sizes, int dim = 0);

// For the list of operators.
std::vector<const Op*> view_ops();

}  // namespace dtensor
