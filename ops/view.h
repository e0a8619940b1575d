// The same elements in another shape or order. None of these sends anything but
// reshape and squeeze, where the layout cannot be said of the new shape.
#pragma once
#include <vector>

#include "dtensor/ops/op.h"

namespace dtensor {

// The same elements in another shape; one size may be -1. Throws Error when
// the layout cannot be said of the new shape, naming the redistribute that
// helps.
DistTensor view(const DistTensor&, const Shape&);
// As view, but moves the elements first where it must, to the nearest layout
// that can be said of the new shape. Collective then.
DistTensor reshape(const DistTensor&, const Shape&);
DistTensor permute(const DistTensor&, const std::vector<int>& order);
DistTensor transpose(const DistTensor&, int a, int b);
// Without the dimension, these dimensions, all dimensions whose global size is
// 1. Others stay as they are, as in torch.
DistTensor squeeze(const DistTensor&, int dim);
DistTensor squeeze(const DistTensor&, const std::vector<int>& dims);
DistTensor squeeze(const DistTensor&);
DistTensor unsqueeze(const DistTensor&, int dim);
// Dimensions of size 1 repeated; new ones in front. -1 keeps a size.
DistTensor expand(const DistTensor&, const Shape&);

// For the list of operators.
std::vector<const Op*> view_ops();

}  // namespace dtensor
