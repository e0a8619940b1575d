// SPDX-License-Identifier: Apache-2.0
// Which layouts a case's inputs are given.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/placement/mesh.h"
#include "tests/conformance/cases.h"

namespace dtensor::conformance {

// The inputs' layouts of one call, as text ("S0,P"), in the case's order; after
// them one for the cotangent of every output that has one.
using Combination = std::vector<std::string>;

// Every combination of {R, S(d) for each dimension, P} per mesh axis and input,
// or, when there are more than `most`, that many different ones, drawn by a
// generator seeded with the case's id, the mesh and `seed`. Booleans and
// tensors that are not finite are never partial. Cotangents' layouts are always
// drawn. No two equal combinations of inputs; one for a case without inputs,
// or on one rank.
std::vector<Combination> combinations(const Cases&, const Case&, const Mesh&,
                                      int64_t most, uint64_t seed);

}  // namespace dtensor::conformance
