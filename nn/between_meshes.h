// SPDX-License-Identifier: Apache-2.0
// Moves tensors from one part of a mesh to another, as the modules of a
// pipeline need between their stages.
#pragma once
#include "dtensor/dist_tensor.h"
#include "dtensor/nn/parallel.h"

namespace dtensor::nn {

// Whether both meshes have axes of the same names and sizes, in the same order.
bool same_axes(const Mesh&, const Mesh&);

// The spec that a tensor with spec x gets on another mesh: in the layout of x,
// without partial sums, if both meshes have the same axes, and replicated if
// not.
const Spec* spec_onto(const Mesh&, const Spec* x);
// Moves x to the mesh in the layout of spec_onto(); returns x itself if it is
// on that mesh already. Collective over both meshes; differentiable.
DistTensor onto(const Mesh&, const DistTensor& x);
// Like onto(), for a batch of tokens [b, s]. If it moves, it gets the layout
// batch_layout().
DistTensor batch_onto(const Mesh&, const DistTensor& x);

}  // namespace dtensor::nn
