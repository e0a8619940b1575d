// Operators on an operand that is read where it lies, instead of being
// gathered: one box of it after the other, each with what of the other operands
// and of the outputs belongs to it.
#pragma once
#include <cstddef>
#include <span>

#include "dtensor/ops/compute.h"
#include "dtensor/placement/schedule.h"
#include "dtensor/runtime/comm/communicator.h"

namespace dtensor {

// Can the operator, decided so, take input i in these boxes of this rank's
// part, and is that worth it? Not of an input that little is copied of, or that
// comes in many boxes.
bool takes_boxes(const Op&, const Decision&, size_t i,
                 std::span<const SourceBox>);

// compute(), of whose c.in[i] each box is where its member's source says.
// REQUIRES: takes_boxes().
void compute_in_boxes(Compute& c, size_t i, std::span<const SourceBox>,
                      Communicator::Sources);

}  // namespace dtensor
