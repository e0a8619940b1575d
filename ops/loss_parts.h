// SPDX-License-Identifier: Apache-2.0
// Parts that losses share, in cross_entropy.cc. Private to ops.
#pragma once
#include <cstdint>

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/losses.h"

namespace dtensor {

// The loss of each element, as it is, or summed, or its mean. Throws Error for
// kBatchMean if the loss has no dimension.
DistTensor reduced(const DistTensor& loss, Reduction);
// Whether each target counts: it is not the ignore_index.
DistTensor counted(const DistTensor& targets, int64_t ignore_index);

}  // namespace dtensor
