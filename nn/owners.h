// SPDX-License-Identifier: Apache-2.0
// Gives each matrix of a step to one rank, which does the work on it: its
// owner. Pure functions of specs and prices, so all ranks get the same owners.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "dtensor/placement/cost.h"
#include "dtensor/placement/spec.h"

namespace dtensor::nn {

// A matrix, as a step finds it, and the prices of the work on it: with its
// messages if the ranks share it, and on one rank, without messages.
struct MatrixTask {
  SpecRef spec;
  int64_t split_ps, whole_ps;
};

// The mesh rank of each matrix's owner; -1 if all ranks work on it.
//
// Matrices go to the ranks of their mesh from the longest work to the shortest,
// each to the rank that has the least so far (Graham, SIAM J. Appl. Math. 17,
// 1969). Unless `always`, a matrix has an owner only if that is cheaper than
// shared work, given that ranks have equally much to do. Of those, the first
// few with the longest work have none if that makes the step cheaper: its price
// is that of the work of the busiest rank, of shared work, and of two
// exchanges, in which parts go to owners and come back. The last rank of the
// mesh has the most to do.
std::vector<int64_t> assign_owners(std::span<const MatrixTask>,
                                   const CostTable&, bool always);

// The bytes that a rank of the run receives in the two exchanges: the parts
// that it lacks of the matrices that it owns, and its parts of the others,
// once. No exchange of whole matrices moves fewer.
int64_t owner_bytes(std::span<const SpecRef> matrices,
                    std::span<const int64_t> owners, int64_t world_rank);

// The price of a product of matrices [m, k] and [k, n] on one rank.
int64_t product_ps(const CostTable&, int64_t m, int64_t k, int64_t n, DType);

// The layout in which this mesh rank has all of a tensor, and others nothing.
// (They have none of dimension 0.)
Layout owned_layout(const Mesh&, const Shape&, int64_t mesh_rank);

}  // namespace dtensor::nn
