// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/prices.h"

#include <algorithm>

namespace dtensor {
namespace {

// Lowers `to` to at most `c`. The extra price of bytes beyond a cache is
// ignored: a bound without it is still a lower bound.
void lower(LinkCost& to, const LinkCost& c) {
  to.alpha_ps = std::min(to.alpha_ps, c.alpha_ps);
  to.ps_per_byte = std::min(to.ps_per_byte, c.ps_per_byte);
}

}  // namespace

Prices::Prices(const CostTable& table, const Mesh& mesh, int64_t chunks)
    : table_(table), chunks_(chunks) {
  of_axis_.fill(kDearest);
  for (int a = 0; a < mesh.num_axes(); ++a) {
    if (mesh.axis_size(a) == 1) continue;
    LinkCost& own = of_axis_[static_cast<size_t>(a)];
    lower(own, static_cast<size_t>(a) < table.axes.size()
                   ? table.axes[static_cast<size_t>(a)]
                   : AxisCost{});
    for (const CostTable::Group& g : table.groups)
      if (g.axes >> a & 1) lower(own, g.cost);
    dtensor::lower(least_, own);
  }
  for (int a = 0; a < mesh.num_axes(); ++a)
    differ_ |=
        mesh.axis_size(a) > 1 && of_axis_[static_cast<size_t>(a)] != least_;
  memo_.assign((size_t{mesh.all_axes()} + 1) * (by_kind_ ? kNumStepKinds : 1),
               {.alpha_ps = -1});
}

void Prices::lower(LinkCost& to, const AxisCost& c) {
  dtensor::lower(to, static_cast<const LinkCost&>(c));
  for (const auto& k : c.kinds)
    if (k) {
      by_kind_ = true;
      dtensor::lower(to, *k);
    }
}

int64_t Prices::least(int64_t bytes, double crossing,
                      const LinkCost& axis) const {
  double ps =
      crossing * axis.ps_per_byte +
      std::max(0.0, static_cast<double>(bytes) - crossing) * least_.ps_per_byte;
  // Each step's price is rounded by itself, so stay a few picoseconds below.
  if (ps < 0x1p53 && ps != static_cast<double>(static_cast<int64_t>(ps)))
    ps = std::max(0.0, static_cast<double>(static_cast<int64_t>(ps)) - 4);
  return alpha(axis) + saturated_ps(ps);
}

}  // namespace dtensor
