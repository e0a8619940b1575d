// Softmax along a dimension. If that is split, the ranks exchange one maximum
// and one sum per row (Milakov and Gimelshein, arXiv 1805.02867), never the
// rows.
#pragma once

#include "dtensor/dist_tensor.h"

namespace dtensor {

// Every rank of the mesh calls them. They throw Error unless x is a float type.
DistTensor softmax(const DistTensor&, int dim);
DistTensor log_softmax(const DistTensor&, int dim);

}  // namespace dtensor
