// SPDX-License-Identifier: Apache-2.0
// Functions of a Dim: they split it evenly, over fewer axes, or with one owner
// for every index; select every step-th index; find the first rank that holds
// an index; and tell whether copies lie alike.
#pragma once
#include <cstdint>
#include <optional>

#include "dtensor/placement/layout.h"
#include "dtensor/placement/mesh.h"

namespace dtensor {

// A Dim split evenly over these axes, in mesh order.
Dim balanced(int64_t size, AxisMask axes);

// The Dim split only over axes in `axes`: every leaf keeps its leading axes up
// to the first that is not in `axes`. Every rank keeps all indices that it had.
// The result is canonical.
Dim restricted(const Dim&, const Mesh&, AxisMask axes);

// The Dim over the same axes with every index in exactly one part: if a segment
// of a concat lacks an axis of another segment, it is split over that axis too.
// No rank gets an index that it did not have, so the change sends nothing. The
// result is canonical.
Dim partitioned(const Dim&, const Mesh&);

// Whether all ranks that hold an index have it at the same place in parts of
// the same size. The rounding of a sum depends on the size of the part and the
// place in it, so copies that lie differently would get different bits.
bool copies_lie_alike(const Dim&, const Mesh&);

// The Dim of the indices 0, step, 2 step, ...: every rank keeps those that it
// had. nullopt for a product if the inner size is neither a multiple nor a
// divisor of `step`, since each outer index would then need its own segment.
// REQUIRES: step >= 1.
std::optional<Dim> every(const Dim&, const Mesh&, int64_t step);

// The indices that the rank at `at` has, in local order, without those that an
// earlier rank of its group also has. The ranks of the group differ only in
// those of `axes` that split the Dim. So if several ranks hold a segment whole,
// only the first of them gets it.
IntervalList first_held(const Dim&, const Mesh&, const Coord& at,
                        AxisMask axes);

}  // namespace dtensor
