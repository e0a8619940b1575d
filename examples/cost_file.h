// Prices from a file.
#pragma once
#include <string>

#include "placement/cost.h"
#include "placement/mesh.h"

namespace dtensor::examples {

// Reads {"alpha_us": 5, "gb_per_s": 20, "gflop_per_s": 100,
// "local_gb_per_s": 10, "axes": {"tp": {"alpha_us": 2, "gb_per_s": 50}}};
// whatever is missing keeps its default. Throws Error for a file that cannot be
// read, a name that is not one of these, or a number that is not positive.
CostTable read_cost_file(const std::string& path, const Mesh& mesh);

}  // namespace dtensor::examples
