// The cheapest way between two layouts on one mesh: plan()'s engine.
#pragma once
#include <cstdint>

#include "dtensor/placement/plan.h"

namespace dtensor {

// A shortest path (A*, Hart, Nilsson & Raphael 1968) over the layouts of
// route.h. The way that is still to go is bounded from below by the bytes that
// ranks lack, by those that have to cross an axis at that axis's price, and by
// the receives that combining a partial takes; for most pairs the direct step
// meets the bound and nothing is searched. What lies between source and
// destination needs at most `block` bytes on a rank, if `may_chunk` on one part
// of the tensor at a time (Plan::chunks); without that, more where there is no
// other way (partials of several kinds, one within the other). Throws Error
// when there is no way. REQUIRES: specs that differ in their layout alone, and
// elements.
Plan search(const Spec* from, const Spec* to, const CostTable&, int64_t block,
            bool may_chunk);
QuickPlan quick_search(const Spec* from, const Spec* to, const CostTable&,
                       int64_t block);

}  // namespace dtensor
