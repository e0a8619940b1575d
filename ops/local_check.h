// SPDX-License-Identifier: Apache-2.0
// Compares a local_map() with a run on one rank. Private to ops.
#pragma once
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/custom.h"

namespace dtensor {

// Computes fn on the whole inputs, and throws Error on all ranks of the mesh if
// an output that local_map() computed differs by more than rounding: by more
// than 1e-9 (f64), 1e-4 (f32) or 2e-2 (bf16, f16) of the largest absolute value
// that is not infinite. Integers have to be equal. fn draws from the generators
// as they were in the state `random`. Collective over the mesh.
void check_local_map(const TensorFunction& fn, const RandomState& random,
                     const std::vector<DistTensor>& inputs,
                     const std::vector<DistTensor>& outputs);

}  // namespace dtensor
