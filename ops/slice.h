// Windows of a tensor. They send nothing: every rank keeps its part of the
// window, which may be empty. Gradients return to the input's layout without
// sending, too. There are two exceptions, which gather: select() of a scalar,
// which no layout can leave on one rank, and a step through a dimension of
// several sub-dimensions that the step does not fit. Every rank of the mesh
// calls these functions.
#pragma once
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// The indices lo, lo + step, ... below hi of a dimension. lo and hi are
// clamped, and count from the end if negative, as in Python. Throws Error if
// step < 1.
DistTensor slice(const DistTensor&, int dim, int64_t lo, int64_t hi,
                 int64_t step = 1);
// The `length` indices from `start` on, which counts from the end if negative.
// Throws Error if some of them do not exist.
DistTensor narrow(const DistTensor&, int dim, int64_t start, int64_t length);
// Selects one index of a dimension, and removes the dimension. Throws Error if
// the index does not exist.
DistTensor select(const DistTensor&, int dim, int64_t index);
// Consecutive pieces of these sizes, which must add up to the dimension's size.
std::vector<DistTensor> split(const DistTensor&,
                              const std::vector<int64_t>& sizes, int dim = 0);
// Consecutive pieces of this size; the last one may be smaller. An empty
// dimension gives one empty piece.
std::vector<DistTensor> split(const DistTensor&, int64_t size, int dim = 0);
// At most `chunks` pieces of ceil(size / chunks); the last one may be smaller.
// An empty dimension gives `chunks` empty pieces.
std::vector<DistTensor> chunk(const DistTensor&, int64_t chunks, int dim = 0);

}  // namespace dtensor
