// SPDX-License-Identifier: Apache-2.0
// Dims that give each index range an owner: a concat of segments, each with one
// owner.
//
// Zig-zag order balances causal attention: rank r of p has chunks r and 2p-1-r
// of 2p, so that the queries of every rank may attend to about equally many
// keys.
// Zig-zag order is a layout like any other: nothing is permuted, and an index
// has the same meaning in every layout.
#pragma once
#include <cstdint>
#include <vector>

#include "dtensor/placement/layout.h"
#include "dtensor/placement/mesh.h"

namespace dtensor {

// The Dim in which the j-th rank of a group over these axes, in the order of
// Mesh::group(), has parts[j]. Canonical. Throws Error unless there is one list
// for each rank, all lists ascend, and together they have every index of [0,
// size) exactly once.
Dim owned(int64_t size, const Mesh&, AxisMask axes,
          const std::vector<IntervalList>& parts);

// The Dim of which the rank at coordinate `owner` of the axis has all. Throws
// Error if the axis has no such rank.
Dim owned_by(int64_t size, const Mesh&, int axis, int64_t owner);

// The opposite of owned(): the part of each rank of a group over the Dim's
// axes. If several ranks hold an index, one of them gets it, as in
// partitioned().
std::vector<IntervalList> parts_of(const Dim&, const Mesh&);

// The Dim in zig-zag order over one axis: chunk i of 2p is [floor(i n / 2p),
// floor((i+1) n / 2p)).
Dim zigzag(int64_t size, const Mesh&, int axis);

// Cuts the part of each rank (see parts_of()) evenly among the ranks of one
// more axis, in the order of the part's local indices. The new axis is inside
// the Dim's other axes. Throws Error if it already splits the dimension.
Dim subdivided(const Dim&, const Mesh&, int axis);

}  // namespace dtensor
