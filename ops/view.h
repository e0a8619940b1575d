// Views of a tensor in another shape or order. Only reshape and squeeze may
// send anything, if the layout cannot be expressed in the new shape. Every rank
// of the mesh calls these functions.
#pragma once
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// Another shape; one size may be -1. Throws Error if the layout cannot be
// expressed in the new shape; the message names a redistribute() that helps.
DistTensor view(const DistTensor&, const Shape&);
// As view(), but if necessary moves the elements to the nearest layout that can
// be expressed in the new shape.
DistTensor reshape(const DistTensor&, const Shape&);
// Dimension d of the result is dimension order[d] of the input.
DistTensor permute(const DistTensor&, const std::vector<int>& order);
DistTensor transpose(const DistTensor&, int a, int b);
// Removes this dimension, these dimensions, or all dimensions, if their global
// size is 1. Others stay, as in torch.
DistTensor squeeze(const DistTensor&, int dim);
DistTensor squeeze(const DistTensor&, const std::vector<int>& dims);
DistTensor squeeze(const DistTensor&);
DistTensor unsqueeze(const DistTensor&, int dim);
// Repeats dimensions of size 1, and adds new ones in front. -1 keeps a size.
DistTensor expand(const DistTensor&, const Shape&);

}  // namespace dtensor
