// SPDX-License-Identifier: Apache-2.0
// Lists a region's indices one by one, for tests to compare with.
#pragma once
#include <cstdint>
#include <vector>

#include "dtensor/placement/region.h"

namespace dtensor::testing {

// The row-major indices of a tensor of that shape that a region holds, in local
// order.
inline std::vector<int64_t> indices(const Region& region, const Shape& shape) {
  std::vector<int64_t> flat{0};
  for (size_t d = 0; d < region.size(); ++d) {
    std::vector<int64_t> next;
    for (int64_t head : flat)
      for (const Interval& r : region[d])
        for (int64_t i = r.lo; i < r.hi; ++i)
          next.push_back(head * shape[static_cast<int>(d)] + i);
    flat = std::move(next);
  }
  return flat;
}

}  // namespace dtensor::testing
