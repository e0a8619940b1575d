// SPDX-License-Identifier: Apache-2.0
// Functions of local parts: code that says itself what each rank computes.
//
//   const auto f = local_map(
//       [](const std::vector<DistTensor>& in) {
//         return std::vector{matmul(in[0], in[1])};
//       },
//       {"S0,R", "R,S1"}, {"S0,S1"});
//   DistTensor y = f({x, w})[0];
//
// Inside the function, each rank has its parts as tensors on local_mesh(), the
// mesh of this rank alone. All operators work on them, and only the functions
// of collectives.h communicate. The values of different ranks are independent:
// a gradient differentiates the sum of what all ranks compute.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/custom.h"

namespace dtensor {

// The mesh whose only rank is the calling one.
Mesh local_mesh();

// This rank's part of x as a tensor on local_mesh(), in the memory of x. Throws
// Error on a rank outside the mesh of x.
//
// Differentiable if x is partial by sums only. The gradient of x is laid out as
// x is where x is split. Where x is replicated, it is the sum of the ranks'
// cotangents (a partial sum). Where x is a partial sum, all ranks need to have
// the same cotangent, since it is that of every part.
DistTensor to_local(const DistTensor& x);

// The reverse of to_local(): a tensor on `mesh` from each rank's part, which is
// on local_mesh(). Does not copy the part. Along a replicated axis, all ranks
// have to pass the same values. Throws Error if the part does not have the
// shape that the layout gives this rank.
//
// Without a shape, ranks tell each other the shapes of their parts, and the
// sizes of a split dimension add up. They may be any sizes: the layout lists
// the boundaries if they are not those of Shard(). Collective over the mesh,
// whose ranks all throw Error if the parts do not fit together. (In a dry run,
// the other parts are as large as this one.)
//
// Differentiable if the result is partial by sums only.
DistTensor from_local(const DistTensor& part, const Mesh& mesh,
                      const Placements&);
DistTensor from_local(const DistTensor& part, const Mesh& mesh,
                      const Placements&, const Shape& global_shape);

struct LocalMapOptions {
  // The outputs' global shapes. If empty, the first call with inputs of some
  // specs finds out, as from_local() does, and later calls expect the same.
  std::vector<Shape> shapes = {};
  // Whether RunOptions::check compares the outputs with those of one rank. Turn
  // it off for a function that is meant to depend on the mesh.
  bool check = true;
};

// Returns a function that brings its inputs to the layouts `in`, calls `fn` on
// each rank with the local parts, and makes outputs with the layouts `out` from
// the local results, which are on local_mesh(). Like jax.shard_map, with parts
// of any sizes, also none. The inputs are on one mesh, whose ranks, and no
// others, call the result; it is collective.
//
// Differentiable, also twice, by the operators that fn calls, if the inputs and
// outputs are partial by sums only. The gradient keeps fn until it is taken
// with release_graph or the graph is dropped, so fn must capture by value
// everything that does not live that long. Under create_graph, the gradient
// calls fn again, with the same random numbers.
// Tensors that fn uses besides its inputs get no gradient. With an input that
// is partial, fn has to be linear in it.
//
// With RunOptions::check, every call also computes fn on the whole inputs, on
// every rank by itself, with all collectives among one rank, and compares. If
// the results differ by more than rounding, every rank throws an Error that
// names the output, the ranks and the first element that differs.
//
// A call throws Error if the number of inputs or outputs, a layout, or the
// shapes of the results do not fit: on every rank, or if the shapes are known
// from LocalMapOptions or an earlier call, on the ranks where they do not fit.
TensorFunction local_map(TensorFunction fn, std::vector<Placements> in,
                         std::vector<Placements> out,
                         const LocalMapOptions& = {});
// The overload for one input and one output.
std::function<DistTensor(const DistTensor&)> local_map(
    std::function<DistTensor(const DistTensor&)> fn, const Placements& in,
    const Placements& out, const LocalMapOptions& = {});

}  // namespace dtensor
