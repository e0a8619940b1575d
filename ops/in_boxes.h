// SPDX-License-Identifier: Apache-2.0
// Lets operators read an operand in place, from other ranks' memory, instead of
// gathering it. They read it box by box, each with the matching slices of the
// other operands and of the outputs (Op::in_boxes).
//
// All ranks agree on whether a call may do this (to_read()), because their
// collectives must keep one order. Each rank then decides for itself whether to
// do it. The others do not notice: the rank takes part in the gather either
// way.
#pragma once
#include <cstddef>
#include <optional>
#include <span>

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/compute.h"

namespace dtensor {

// Returns the input that this call may read in place, if there is one: the
// largest of those that the operator accepts in boxes, and whose copies would
// be freed right after the call. `given` are the call's inputs; `record` tells
// whether the call will have a gradient.
std::optional<size_t> to_read(const Op&, const Decision&, bool record,
                              std::span<const DistTensor> given);

// read_moved() and read_gathered() compute c.out while reading input `which` in
// place, and return true. They return false if it has to be copied after all.
//
// read_moved() is for the only input that moves. If it returns false, it has
// sent nothing.
bool read_moved(Compute& c, size_t which, std::span<const DistTensor> inputs);
// read_gathered() is for a parameter that is gathered on use. It always calls
// gather_inputs() (gather.h) with these `given` and `seen`. `ready` are the
// inputs in the decided layouts.
bool read_gathered(Compute& c, size_t which, std::span<const DistTensor> given,
                   std::span<DistTensor> seen,
                   std::span<const DistTensor> ready);

}  // namespace dtensor
