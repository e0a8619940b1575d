// SPDX-License-Identifier: Apache-2.0
// Finds the cheapest way between two layouts on one mesh, for plan().
#pragma once
#include <cstdint>

#include "dtensor/placement/plan.h"

namespace dtensor {

// Finds a shortest path (A*, Hart, Nilsson & Raphael 1968) over the layouts of
// route.h. Lower bounds of the price of the remaining way come from the bytes
// that ranks lack, the bytes that have to cross an axis at that axis's price,
// and the bytes that must be received to combine a partial. For most pairs the
// direct step meets the bound, and nothing is searched.
//
// A rank holds at most `block` bytes between source and destination. If
// `may_chunk` is set, the tensor may be moved in parts, one after the other, to
// keep this limit (Plan::chunks). Without chunks, a rank may hold more if no
// way keeps the limit (for example, if partials of several kinds are nested).
// Throws Error if no steps lead to the destination. REQUIRES: the specs differ
// in layout only, and the tensor has elements.
Plan search(const Spec* from, const Spec* to, const CostTable&, int64_t block,
            bool may_chunk);
QuickPlan quick_search(const Spec* from, const Spec* to, const CostTable&,
                       int64_t block);

}  // namespace dtensor
