// SPDX-License-Identifier: Apache-2.0
// An operator's call in the graph of gradients.
#pragma once
#include <memory>
#include <span>

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/attrs.h"
#include "dtensor/ops/decision.h"

namespace dtensor {

// Records the call: its outputs of float types get a node that holds what
// Op::gradient() will need. `used` are the inputs as they were computed on,
// made from `given`.
void record_node(const Op&, const Attrs&, std::shared_ptr<const Decision>,
                 std::span<const DistTensor> given,
                 std::span<const DistTensor> used,
                 std::span<DistTensor> outputs);

}  // namespace dtensor
