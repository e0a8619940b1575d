// Gradient clipping by the global norm.
#pragma once
#include <vector>

#include "dtensor/runtime/dist_tensor.h"

namespace dtensor::nn {

// The 2-norm of all gradients together, the same number on every rank. Each
// element counts once, however often it is held. Collective: one scalar (f64)
// all-reduce for each set of mesh axes that splits some gradient; tagged
// "grad_norm", phase "clip". 0 in a dry run. Throws Error for a partial
// gradient, whose parts do not say its norm.
double global_norm(const std::vector<DistTensor>& grads);

// What to multiply the gradients by so that their norm is at most max_norm:
// min(1, max_norm / (norm + 1e-6)), as in torch.nn.utils.clip_grad_norm_.
// max_norm 0 does not clip. REQUIRES: max_norm >= 0.
double clip_scale(double norm, double max_norm);

}  // namespace dtensor::nn
