// SPDX-License-Identifier: Apache-2.0
// Collectives as functions, for local tensors (local_map.h): those on
// local_mesh(), of which each rank has its own. All are differentiable, also
// twice, and take parts of any sizes.
//
//   x = all_reduce(x, "tp");          // inside local_map(): its mesh's axis tp
//   x = all_reduce(x, {mesh, "tp"});  // anywhere
//
// All members of the group make the same calls in the same order; if the calls
// differ, all throw the same Error. A gradient differentiates the sum of what
// all ranks compute: that of all_reduce() is an all-reduce of the cotangents,
// that of all_gather() a reduce-scatter, and so on.
//
// Each function is a redistribution of the tensor that the parts make up, and
// is counted as such.
#pragma once
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// The ranks that differ from the calling one only in some mesh axes.
class AxisGroup {
 public:
  // `axes` is a name or several, "dp,tp"; the last one varies fastest. The mesh
  // is that of the running local_map(). Throws Error outside of local_map(), or
  // if the mesh has no such axis.
  AxisGroup(const char* axes) : AxisGroup(std::string_view(axes)) {}
  AxisGroup(std::string_view axes);
  AxisGroup(const Mesh&, std::string_view axes);
  // All axes of the running local_map()'s mesh; outside of one, all ranks of
  // the run, as in torch.
  AxisGroup();

  int64_t size() const { return mesh().num_ranks(); }
  // The number of the calling rank in the group.
  int64_t rank() const;
  // The members along one axis, "group". While RunOptions::check computes on
  // whole inputs, every group is the calling rank alone.
  Mesh mesh() const;

 private:
  Mesh mesh_;
};

// The reduction of the members' x, which have one shape. Only a sum has a
// gradient.
DistTensor all_reduce(const DistTensor& x, const AxisGroup& = {},
                      ReduceOp = ReduceOp::kSum);
// The members' x, joined along `dim` in the order of the group. Other sizes are
// equal. (Members tell each other the sizes along `dim` first; so do those of
// all_to_all() and ppermute(). In a dry run they are those of an input of the
// local_map() that is split alike, if there is one, or else all x's own.)
DistTensor all_gather(const DistTensor& x, const AxisGroup&, int dim = 0);
// This rank's piece of the members' sum. `dim` is cut as Shard() cuts it.
DistTensor reduce_scatter(const DistTensor& x, const AxisGroup&, int dim = 0);
// Cuts x along split_dim, as Shard() does, sends piece i to member i, and joins
// the pieces that arrive along concat_dim, in the order of the group.
DistTensor all_to_all(const DistTensor& x, const AxisGroup&, int split_dim = 0,
                      int concat_dim = 0);
// Like all_to_all() along dimension 0, in pieces of the given sizes, which add
// up to x.size(0). Member i gets sizes[i] of them.
DistTensor all_to_all(const DistTensor& x, const AxisGroup&,
                      const std::vector<int64_t>& sizes);
// The x of member `root`. The others pass a tensor of the same shape and type,
// whose values are ignored.
DistTensor broadcast(const DistTensor& x, const AxisGroup& = {},
                     int64_t root = 0);
// For each pair (source, destination), member `destination` gets the x of
// `source`, as in jax.lax.ppermute; a member that is no destination gets zeros
// of the shape of its own x. No member may be the source, or the destination,
// of two pairs. Sizes of x may differ along dimension 0.
DistTensor ppermute(const DistTensor& x, const AxisGroup&,
                    const std::vector<std::pair<int64_t, int64_t>>& pairs);

}  // namespace dtensor
