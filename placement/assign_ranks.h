// Which rank plays which part of a mesh that a tensor moves to.
#pragma once
#include "dtensor/placement/layout.h"
#include "dtensor/placement/mesh.h"
#include "dtensor/placement/spec.h"

namespace dtensor {

// `to` with its ranks permuted such that the fewest bytes, summed over the
// ranks, have to come from other ranks when a tensor moves there, into
// `layout`, from `from` (whose partials are combined where they are). Ties
// prefer ranks that stay where `to` has them. Exact, in O(n^3) for n ranks:
// exchanging two ranks at a time would miss a cycle of three. Throws Error when
// the layout is not of from's shape.
Mesh assign_ranks(const Spec* from, const Mesh& to, const Layout& layout);

}  // namespace dtensor
