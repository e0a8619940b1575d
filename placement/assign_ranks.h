// SPDX-License-Identifier: Apache-2.0
// Decides which rank takes which position of the mesh that a tensor moves to.
#pragma once
#include "dtensor/placement/layout.h"
#include "dtensor/placement/mesh.h"
#include "dtensor/placement/spec.h"

namespace dtensor {

// Returns `to` with its ranks permuted so that they receive the fewest bytes in
// all when the tensor moves from `from` to `layout` on the returned mesh.
// (Partials of `from` count as if they were combined in place.) Among equally
// good orders, it prefers those that leave more ranks where `to` has them. The
// result is optimal, and takes O(n^3) time for n ranks. (Swapping ranks two at
// a time would miss improvements that move three ranks in a cycle.) Throws
// Error if the shape of the layout is not that of `from`.
Mesh assign_ranks(const Spec* from, const Mesh& to, const Layout& layout);

}  // namespace dtensor
