// Are the copies of a value still the same? A flipped bit in one of them, or an
// update that only some ranks made, goes unnoticed else.
#pragma once
#include <span>

#include "dtensor/named_tensor.h"

namespace dtensor {

// Compares, of each tensor, the parts of ranks that hold the same indices, bit
// for bit, by checksums: 8 bytes per tensor and rank are sent. Ranks of an axis
// over which a tensor is partial hold no copies of each other. Throws Error on
// every rank that names the tensor, the ranks whose part is another than most
// have, and both checksums; where no value has a majority it lists all of them.
// Collective over the run: every rank gives the same list, also a rank that is
// in none of the meshes. Does nothing in a dry run.
void check_replicas(std::span<const NamedTensor>);

}  // namespace dtensor
