// Tensors that go from one part of a mesh to another: what the modules of a
// pipeline do between their stages.
#pragma once
#include "dtensor/dist_tensor.h"
#include "dtensor/nn/parallel.h"

namespace dtensor::nn {

// Have they axes of the same names and sizes, in the same order?
bool same_axes(const Mesh&, const Mesh&);

// x, a partial sum summed, on another mesh: in the same layout where both have
// the same axes, else whole.
const Spec* spec_onto(const Mesh&, const Spec* x);
// x itself when it is there. Collective over both meshes; differentiable.
DistTensor onto(const Mesh&, const DistTensor& x);
// The same of a batch of tokens, in batch_layout().
DistTensor batch_onto(const Mesh&, const DistTensor& x);

}  // namespace dtensor::nn
