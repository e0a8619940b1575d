// SPDX-License-Identifier: Apache-2.0
// Operators that read an operand in place, from other ranks' memory, instead of
// gathering it: box by box, each with the matching slices of the other operands
// and of the outputs (Op::in_boxes).
//
// All ranks agree on whether a call may do this, because their collectives must
// keep one order. Each rank decides for itself whether it does: for the others
// it takes part in a gather either way.
#pragma once
#include <cstddef>
#include <optional>
#include <span>

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/compute.h"

namespace dtensor {

// The input that this call may read in place: the largest one that the operator
// accepts in boxes, and that would be freed right after the call. `given` are
// the call's inputs; `record` says whether it will have a gradient.
std::optional<size_t> to_read(const Op&, const Decision&, bool record,
                              std::span<const DistTensor> given);

// Both compute c.out while reading input `which` in place, and return true. If
// the input has to be moved after all, they return false.
//
// For the only input that moves; when it returns false, nothing was sent.
bool read_moved(Compute& c, size_t which, std::span<const DistTensor> inputs);
// For a parameter. `given` and `seen` are as in gather_inputs(), which this
// calls in either case; `ready` are the seen inputs in the decided layouts.
bool read_gathered(Compute& c, size_t which, std::span<const DistTensor> given,
                   std::span<DistTensor> seen,
                   std::span<const DistTensor> ready);

}  // namespace dtensor
