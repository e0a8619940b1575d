// SPDX-License-Identifier: Apache-2.0
// Functions of a Dim: the same dimension split evenly, over fewer axes, or with
// one owner for every index; every step-th index; the first rank that has an
// index; and whether copies lie alike.
#pragma once
#include <cstdint>
#include <optional>

#include "dtensor/placement/layout.h"
#include "dtensor/placement/mesh.h"

namespace dtensor {

// A Dim split evenly over these axes, in mesh order.
Dim balanced(int64_t size, AxisMask axes);

// The Dim without the other axes: every leaf keeps the leading axes that are in
// `axes`. A rank still has everything that it had. Canonical.
Dim restricted(const Dim&, const Mesh&, AxisMask axes);

// The Dim over the same axes with every index in exactly one part: a segment of
// a concat that lacks an axis of another segment is split over it too. No rank
// gets an index that it did not have, so the change sends nothing. Canonical.
Dim partitioned(const Dim&, const Mesh&);

// Whether all ranks that hold an index have it at the same place in parts of
// the same size. Kernels that sum round by the size of a part and the place in
// it, so copies that lie differently would get different bits.
bool copies_lie_alike(const Dim&, const Mesh&);

// The Dim of the indices 0, step, 2 step, ...: every rank keeps those that it
// had. nullopt if they fall unevenly on the parts of a product, since each
// outer index would then need its own segment. REQUIRES: step >= 1.
std::optional<Dim> every(const Dim&, const Mesh&, int64_t step);

// The indices that the rank at `at` has, less those that an earlier rank of its
// group over `axes` also has. A segment that several ranks hold whole thus
// counts for the first of them only. In local order.
IntervalList first_held(const Dim&, const Mesh&, const Coord& at,
                        AxisMask axes);

}  // namespace dtensor
