// Gradients for users.
#pragma once
#include <vector>

#include "dtensor/runtime/dist_tensor.h"

namespace dtensor {

struct GradOptions {
  // Record the backward pass, so that the gradients can be differentiated.
  bool create_graph = false;
  // Leave gradients partial (several micro-batches add to them, then one
  // redistribute settles them) instead of in their inputs' layouts.
  bool keep_partial = false;
  // Cotangent of the output, of its shape and mesh, in any layout; one of
  // another float type is converted to the output's, as in torch. 1 when
  // undefined (the output is then a scalar).
  DistTensor cotangent = {};
};

// d output / d inputs, zeros for an input that it does not depend on; each in
// its input's layout, and whole where that is partial. All of them are brought
// there together: one collective for each kind and group. Collective.
//
// The gradient is that of a tensor's value. Of a partial sum it is that of
// every part, too; of an average a part's would be divided by the number of
// parts, and of a maximum be that of the winner alone.
std::vector<DistTensor> grad(const DistTensor& output,
                             const std::vector<DistTensor>& inputs,
                             const GradOptions& = {});

}  // namespace dtensor
