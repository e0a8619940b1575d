// SPDX-License-Identifier: Apache-2.0
// The layouts of tensors whose parts may have any shapes. Private to ops.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// The ranks of the run that are in the mesh, by mesh rank.
std::vector<int64_t> world_ranks(const Mesh&);
// Every member's `mine`, by member of the group of ranks. Collective over the
// group. In a dry run, every member's is the caller's.
std::vector<std::vector<int64_t>> gathered_numbers(
    std::string_view op, const std::vector<int64_t>& ranks,
    const std::vector<int64_t>& mine);

// A dimension of the inputs, which are on one mesh, that these axes split as
// dimension d of the part, and of which this rank has as many indices: rather
// that of the input whose memory the part has, or else one whose part has its
// shape. Null if there is none.
const Dim* dim_like(TensorList inputs, AxisMask axes, const Tensor& part,
                    int d);

// The specs of the tensors of which this rank has `parts`, on local_mesh(), in
// these layouts; see from_local() (local_map.h). Collective over the mesh, all
// of whose ranks throw the same Error if the parts do not fit together. In a
// dry run, the size of a split dimension is that of a dimension of `inputs`, on
// the same mesh, of which this rank holds as much and which the same axes
// split; if there is none, all parts are as large as this rank's.
std::vector<SpecRef> specs_of_parts(std::string_view op, const Mesh&,
                                    const std::vector<Placements>&,
                                    TensorList parts, TensorList inputs = {});

}  // namespace dtensor
