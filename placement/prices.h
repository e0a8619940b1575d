// SPDX-License-Identifier: Apache-2.0
// A cost table prepared for one search, and lower bounds of times.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "dtensor/placement/cost.h"
#include "dtensor/placement/mesh.h"
#include "dtensor/placement/step_kind.h"

namespace dtensor {

// Looks up each group of axes in the table only once, or once for each kind of
// step if some kinds have their own prices. Every step pays alpha `chunks`
// times. REQUIRES: the table outlives this object.
class Prices {
 public:
  Prices(const CostTable&, const Mesh&, int64_t chunks);

  LinkCost link(StepKind kind, AxisMask axes) {
    const size_t at = by_kind_
                          ? axes * kNumStepKinds + static_cast<size_t>(kind)
                          : size_t{axes};
    LinkCost& known = memo_[at];
    if (known.alpha_ps < 0) known = table_.link(kind, axes);
    return known;
  }
  int64_t alpha(const LinkCost& c) const {
    if (chunks_ == 1) return std::min(c.alpha_ps, kMostPs);
    return saturated_ps(static_cast<double>(c.alpha_ps) *
                        static_cast<double>(chunks_));
  }
  int64_t step(StepKind kind, AxisMask axes, int64_t bytes) {
    LinkCost c = link(kind, axes);
    return alpha(c) + saturated_ps(c.bytes_ps(bytes));
  }
  int64_t least_alpha() const { return alpha(least_); }
  // Whether axes differ in price, so that it matters which ones data crosses.
  bool differ() const { return differ_; }
  const LinkCost& of_axis(int a) const {
    return of_axis_[static_cast<size_t>(a)];
  }
  // A lower bound of the price of any sequence of steps that moves `bytes` to
  // some rank, `crossing` of them over an axis whose prices are `axis`.
  int64_t least(int64_t bytes, double crossing, const LinkCost& axis) const;
  int64_t least(int64_t bytes) const { return least(bytes, 0, least_); }

 private:
  void lower(LinkCost& to, const AxisCost&);

  static constexpr LinkCost kDearest{kMostPs, 1e300};
  const CostTable& table_;
  const int64_t chunks_;
  LinkCost least_ = kDearest;
  std::array<LinkCost, kMaxAxes> of_axis_;
  bool by_kind_ = false, differ_ = false;
  std::vector<LinkCost> memo_;  // see link(); alpha_ps is -1 if not known
};

}  // namespace dtensor
