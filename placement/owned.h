// Dims that say for each index range who has it: a concat of segments, each
// with one owner.
//
// Zig-zag order is the one that causal attention is balanced by: of 2p chunks,
// rank r of p has chunks r and 2p-1-r, so that the queries of every rank may
// attend to the same number of keys. It is a layout like any other: nothing is
// permuted, and an index means what it means in every layout.
#pragma once
#include <cstdint>
#include <vector>

#include "dtensor/placement/layout.h"
#include "dtensor/placement/mesh.h"

namespace dtensor {

// parts[j] is what the j-th rank of a group over these axes has (in the order
// of Mesh::group()). Canonical. Throws Error unless there are as many lists as
// ranks, all ascend, and together they have every index of [0, size) once.
Dim owned(int64_t size, const Mesh&, AxisMask axes,
          const std::vector<IntervalList>& parts);

// What each rank of a group over the axes of a Dim has: the opposite. An index
// that several ranks hold goes to one of them, as partitioned() has it.
std::vector<IntervalList> parts_of(const Dim&, const Mesh&);

// Zig-zag order over one axis: chunk i of 2p is
// [floor(i n / 2p), floor((i+1) n / 2p)).
Dim zigzag(int64_t size, const Mesh&, int axis);

// What each rank has (see parts_of()), cut evenly among the ranks of one more
// axis, which take it in local order: the axis is the last one. Throws Error
// when the axis splits the dimension already.
Dim subdivided(const Dim&, const Mesh&, int axis);

// The pairs of a query and a key that it may attend to, of these queries and
// keys of one sequence: what an attention head computes. With `causal`, key j
// and query i are a pair when j <= i.
int64_t score_pairs(const IntervalList& queries, const IntervalList& keys,
                    bool causal);

}  // namespace dtensor
