// SPDX-License-Identifier: Apache-2.0
// The node of an operator's call in the graph for gradients (autograd.h).
#pragma once
#include <memory>
#include <span>

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/attrs.h"
#include "dtensor/ops/decision.h"

namespace dtensor {

// Records a call. Its outputs of float types get a node that holds the tensors
// that Op::gradient() will need. `given` are the inputs that the caller passed,
// and `used` are the same inputs in the layouts in which compute() got them,
// except inputs that were not moved because no gradient needs them. The
// inputs' cotangents go to `sources`.
void record_node(const Op&, const Attrs&, std::shared_ptr<const Decision>,
                 std::span<const DistTensor> given,
                 std::span<const DistTensor> used,
                 std::span<const DistTensor> sources,
                 std::span<DistTensor> outputs);

}  // namespace dtensor
