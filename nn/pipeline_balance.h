// SPDX-License-Identifier: Apache-2.0
// Assigns layers to the stages of a pipeline.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace dtensor::nn {

// Cuts layers, in order, into `stages` runs of at least one layer so that the
// most expensive run costs least. Among equally good cuts, the first run gets
// the most layers, because its ranks wait longest. The same rule then cuts the
// layers behind that run. Returns the first layer of each stage, and then the
// number of layers. Throws Error if `stages` is below 1 or above the number of
// layers, or if a cost is negative.
std::vector<int64_t> balanced_stages(std::span<const double> costs,
                                     int64_t stages);

}  // namespace dtensor::nn
