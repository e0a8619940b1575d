// What is made of a Dim besides Dim's own members: the same dimension split
// evenly, over fewer axes, or so that every index has one owner, every step-th
// index of it, and who is the first that has an index; and whether copies lie
// alike.
#pragma once
#include <cstdint>
#include <optional>

#include "dtensor/placement/layout.h"
#include "dtensor/placement/mesh.h"

namespace dtensor {

// Split evenly over these axes, in mesh order.
Dim balanced(int64_t size, AxisMask axes);

// Split over no axes but these: every leaf keeps those that it begins with.
// What a rank had it still has. Canonical.
Dim restricted(const Dim&, const Mesh&, AxisMask axes);

// Split over the same axes, every index in one part: a segment of a concat that
// lacks an axis of another one is split over it too. No rank has more than it
// had, so that getting there sends nothing. Canonical.
Dim partitioned(const Dim&, const Mesh&);

// Whether all ranks that hold an index have it at the same place of parts of
// the same size. Kernels that sum round by the size of a part and by the place
// in it, so that copies that lie otherwise come out with other bits.
bool copies_lie_alike(const Dim&, const Mesh&);

// The Dim of the indices 0, step, 2 step, ...: every rank keeps what it had of
// them. nullopt when they fall unevenly on the parts of a product, which would
// take a segment for each outer index. REQUIRES: step >= 1.
std::optional<Dim> every(const Dim&, const Mesh&, int64_t step);

// The indices that the rank at `at` has and no rank before it does, of those
// that differ from it in these axes of the split: all that it has, but of a
// segment that several hold whole the first one's share alone. In local order.
IntervalList first_held(const Dim&, const Mesh&, const Coord& at,
                        AxisMask axes);

}  // namespace dtensor
