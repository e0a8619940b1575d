// SPDX-License-Identifier: Apache-2.0
// Checks that the copies of a value are still the same. Without this check, a
// flipped bit in one of them, or an update that only some ranks made, goes
// unnoticed.
#pragma once
#include <span>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// Compares the parts of ranks that hold the same indices of a tensor, bit for
// bit, by checksums; sends 8 bytes per tensor and rank. Along an axis over
// which a tensor is partial, ranks do not hold copies of each other. If copies
// differ, every rank throws an Error for the first such tensor. The Error lists
// the checksums, with their ranks: that of the majority, if there is one, and
// at most 8 others. Collective over all ranks of the run, also those outside
// the meshes; all pass the same list. Does nothing in a dry run.
void check_replicas(std::span<const NamedTensor>);

}  // namespace dtensor
