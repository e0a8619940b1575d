// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/between_meshes.h"

namespace dtensor::nn {

bool same_axes(const Mesh& a, const Mesh& b) {
  if (a.num_axes() != b.num_axes()) return false;
  for (int i = 0; i < a.num_axes(); ++i)
    if (a.axis_name(i) != b.axis_name(i) || a.axis_size(i) != b.axis_size(i))
      return false;
  return true;
}

const Spec* spec_onto(const Mesh& mesh, const Spec* x) {
  Layout layout = Layout::replicated(x->shape());
  if (same_axes(mesh, x->mesh())) {
    layout = x->layout();
    layout.partials.clear();
  }
  return Spec::get(mesh, x->shape(), layout, x->dtype());
}

DistTensor onto(const Mesh& mesh, const DistTensor& x) {
  return x.mesh() == mesh ? x : x.redistribute(spec_onto(mesh, x.spec()));
}

DistTensor batch_onto(const Mesh& mesh, const DistTensor& x) {
  return x.mesh() == mesh
             ? x
             : x.redistribute(mesh, Placements(batch_layout(mesh, x.shape())));
}

}  // namespace dtensor::nn
