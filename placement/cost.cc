// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace dtensor {

int64_t all_reduce_elements(int64_t n, int64_t p, bool one_shot) {
  if (p <= 1) return 0;
  if (one_shot) return (p - 1) * n;
  int64_t chunk = (n + p - 1) / p;
  return (p - 1) * chunk + n - chunk;
}

int64_t all_reduce_elements_of_all(int64_t n, int64_t p, bool one_shot) {
  return (p - 1) * (one_shot ? p : 2) * n;
}

void LinkCost::raise_to(const LinkCost& c) {
  alpha_ps = std::max(alpha_ps, c.alpha_ps);
  ps_per_byte = std::max(ps_per_byte, c.ps_per_byte);
  cached_bytes = std::min(cached_bytes, c.cached_bytes);
  extra_ps_per_byte = std::max(extra_ps_per_byte, c.extra_ps_per_byte);
}

int64_t saturated_ps(double ps) {
  return ps < static_cast<double>(kMostPs) ? std::llround(ps) : kMostPs;
}

LinkCost CostTable::link(StepKind kind, AxisMask mask) const {
  if (mask == 0) return {0, 0};
  for (const Group& g : groups)
    if (g.axes == mask) return g.cost.of(kind);
  LinkCost most{0, 0};
  for (int a = 0; a < kMaxAxes; ++a) {
    if (!(mask >> a & 1)) continue;
    LinkCost c = static_cast<size_t>(a) < axes.size()
                     ? axes[static_cast<size_t>(a)].of(kind)
                     : LinkCost{};
    most.raise_to(c);
  }
  return most;
}

int64_t CostTable::collective_ps(StepKind kind, AxisMask mask,
                                 int64_t bytes) const {
  LinkCost c = link(kind, mask);
  return std::min(kMostPs, c.alpha_ps) + saturated_ps(c.bytes_ps(bytes));
}

int64_t CostTable::work_ps(double flops, double bytes) const {
  return saturated_ps(std::max(flops * ps_per_flop, bytes * ps_per_local_byte));
}

std::string CostTable::to_string() const {
  LinkCost c;
  if (!axes.empty()) c = axes[0];
  return fmt::format("alpha {:g} us, {:g} GB/s, {:g} GFLOP/s per rank",
                     static_cast<double>(c.alpha_ps) / 1e6,
                     1000 / c.ps_per_byte, 1000 / ps_per_flop);
}

}  // namespace dtensor
