// SPDX-License-Identifier: Apache-2.0
// Chooses the layouts of a case's inputs.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/placement/mesh.h"
#include "tests/conformance/cases.h"

namespace dtensor::conformance {

// The layouts for one call, as text ("S0,P"): of the inputs in the case's
// order, and then of the cotangent of every output that has one.
using Combination = std::vector<std::string>;

// Returns every combination of {R, S(d) for each dimension, P} for each input
// and mesh axis. If there are more than `most`, returns so many different ones,
// drawn by a generator that is seeded with the case's id, the mesh and `seed`.
// Bools, floats other than f64, and tensors with infinities or NaNs, are never
// partial. Cotangents'
// layouts are always drawn. No two combinations have the same layouts of all
// inputs. There is one combination for a case without inputs, or on one rank.
std::vector<Combination> combinations(const Cases&, const Case&, const Mesh&,
                                      int64_t most, uint64_t seed);

}  // namespace dtensor::conformance
