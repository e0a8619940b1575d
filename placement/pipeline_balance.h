// Which layers make a stage of a pipeline.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace dtensor {

// Cuts layers, in order, into `stages` runs of at least one each, such that the
// dearest run costs least; of equal cuts one that gives early stages more,
// whose ranks wait longest. The first layer of each stage, and the number of
// layers. Throws Error for more stages than layers, and for a negative cost.
std::vector<int64_t> balanced_stages(std::span<const double> costs,
                                     int64_t stages);

}  // namespace dtensor
