// Operators on an operand that is read where it lies, instead of being
// gathered: one box of it after the other, each with what of the other operands
// and of the outputs belongs to it (Op::in_boxes).
//
// Whether a call may is the same on all ranks, whose collectives have one
// order. Whether it does is each rank's own affair: to the others it is a
// gather.
#pragma once
#include <cstddef>
#include <optional>
#include <span>

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/compute.h"

namespace dtensor {

// The input that a call may read so: the largest one that the operator takes in
// boxes, and of which nothing would be held. `given` as the call has them;
// `record`: it will have a gradient.
std::optional<size_t> to_read(const Op&, const Decision&, bool record,
                              std::span<const DistTensor> given);

// Sets c.out, with input `which` read where it lies; false, with nothing sent,
// when it has to be moved. Of the only input that moves:
bool read_moved(Compute& c, size_t which, std::span<const DistTensor> inputs);
// Of a parameter; `given` and `seen` as in gather_inputs(), which this does in
// any case, and `ready` are those that were seen, where they are needed.
bool read_gathered(Compute& c, size_t which, std::span<const DistTensor> given,
                   std::span<DistTensor> seen,
                   std::span<const DistTensor> ready);

}  // namespace dtensor
