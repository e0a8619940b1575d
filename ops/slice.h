// Windows on a tensor. None of these sends anything: every rank keeps what it
// had of the window, which may be nothing. Gradients return to where the tensor
// lay in the same way. Only select() of a scalar, which no layout leaves on
// one rank, and a step through a dimension of several sub-dimensions that it
// does not fit, gather.
#pragma once
#include <vector>

#include "dtensor/ops/op.h"

namespace dtensor {

// Indices lo, lo + step, ... below hi of a dimension; lo and hi are clamped,
// and count from the end when negative, as in Python.
DistTensor slice(const DistTensor&, int dim, int64_t lo, int64_t hi,
                 int64_t step = 1);
// The `length` indices from `start` on, which counts from the end when
// negative. Throws Error when they are not there.
DistTensor narrow(const DistTensor&, int dim, int64_t start, int64_t length);
// One index of a dimension, which goes away.
DistTensor select(const DistTensor&, int dim, int64_t index);
// Consecutive pieces of these sizes, which make up the dimension.
std::vector<DistTensor> split(const DistTensor&,
                              const std::vector<int64_t>& sizes, int dim = 0);
// Consecutive pieces of this size, the last one smaller where need be; of an
// empty dimension one empty piece.
std::vector<DistTensor> split(const DistTensor&, int64_t size, int dim = 0);
// At most `chunks` pieces of ceil(size / chunks), the last one smaller where
// need be; of an empty dimension `chunks` empty ones.
std::vector<DistTensor> chunk(const DistTensor&, int64_t chunks, int dim = 0);

// For the list of operators.
std::vector<const Op*> slice_ops();

}  // namespace dtensor
