// SPDX-License-Identifier: Apache-2.0
// Finds the cheapest way between two layouts on one mesh, for plan().
#pragma once
#include <cstdint>

#include "dtensor/placement/plan.h"

namespace dtensor {

// A shortest path (A*, Hart, Nilsson & Raphael 1968) over the layouts of
// route.h. Lower bounds of the remaining way are: the bytes that ranks lack,
// the bytes that have to cross an axis at that axis's price, and the receives
// that combining a partial takes. For most pairs the direct step meets the
// bound, and nothing is searched.
//
// Memory in between needs at most `block` bytes on a rank; if `may_chunk`, this
// holds for one part of the tensor at a time (Plan::chunks). Without chunks it
// may need more if there is no other way (partials of several kinds, one within
// the other). Throws Error if there is no way. REQUIRES: the specs differ in
// layout only, and the tensor has elements.
Plan search(const Spec* from, const Spec* to, const CostTable&, int64_t block,
            bool may_chunk);
QuickPlan quick_search(const Spec* from, const Spec* to, const CostTable&,
                       int64_t block);

}  // namespace dtensor
