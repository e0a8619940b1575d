// Softmax along a dimension, which may be split: the ranks then exchange one
// maximum and one sum per row (Milakov and Gimelshein, arXiv 1805.02867), never
// the rows.
#pragma once
#include <vector>

#include "dtensor/ops/op.h"

namespace dtensor {

DistTensor softmax(const DistTensor&, int dim);
DistTensor log_softmax(const DistTensor&, int dim);

// For all_ops().
std::vector<const Op*> softmax_ops();

}  // namespace dtensor
