#include "placement/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace dtensor {

int64_t CostTable::collective_ps(AxisMask mask, int64_t bytes) const {
  if (mask == 0) return 0;
  AxisCost most{0, 0};
  for (int a = 0; a < kMaxAxes; ++a) {
    if (!(mask >> a & 1)) continue;
    AxisCost c = static_cast<size_t>(a) < axes.size()
                     ? axes[static_cast<size_t>(a)]
                     : AxisCost{};
    most.alpha_ps = std::max(most.alpha_ps, c.alpha_ps);
    most.ps_per_byte = std::max(most.ps_per_byte, c.ps_per_byte);
  }
  return most.alpha_ps +
         std::llround(static_cast<double>(bytes) * most.ps_per_byte);
}

int64_t CostTable::work_ps(double flops, double bytes) const {
  return std::llround(std::max(flops * ps_per_flop, bytes * ps_per_local_byte));
}

std::string CostTable::to_string() const {
  AxisCost c = axes.empty() ? AxisCost{} : axes[0];
  return fmt::format("alpha {:g} us, {:g} GB/s, {:g} GFLOP/s per rank",
                     static_cast<double>(c.alpha_ps) / 1e6,
                     1000 / c.ps_per_byte, 1000 / ps_per_flop);
}

}  // namespace dtensor
