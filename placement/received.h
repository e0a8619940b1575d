// SPDX-License-Identifier: Apache-2.0
// The bytes that all ranks receive together in a step of a plan.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "dtensor/placement/cost.h"
#include "dtensor/placement/plan.h"

namespace dtensor {

// The sum, over the ranks of the destination's mesh, of the bytes that a rank
// receives in the step; 0 for a step that sends nothing. Exact, also for parts
// of different sizes. (A sum beyond int64_t becomes its largest value.)
//
// Sums up each group of dims_together() separately, over all coordinates on its
// axes, and multiplies the sums. Takes time proportional to the number of these
// coordinates and, between two meshes, of the destination's ranks.
int64_t received_by_all(const Step&, const CostTable&);

// Dimensions whose indices depend on a common axis, directly or through other
// dimensions.
struct DimsTogether {
  std::vector<size_t> dims;
  AxisMask axes = 0;  // all axes that they depend on
};
// Groups the dimensions, given the axes that each depends on. A product over
// dimensions can then be summed up over all ranks group by group.
std::vector<DimsTogether> dims_together(std::span<const AxisMask> axes);

}  // namespace dtensor
