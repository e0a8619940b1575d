// How far gradients are clipped, on every device alike.
#pragma once

#include "dtensor/ops/functions/math.h"

namespace dtensor::kernels {

// What brings gradients of this norm down to max_norm: min(1, max_norm / (norm
// + 1e-6)), as in torch.nn.utils.clip_grad_norm_. 1 for a max_norm of 0; NaN
// when the norm is.
DT_HD inline double clip_of(double norm, double max_norm) {
  if (max_norm == 0) return 1;
  const double scale = max_norm / (norm + 1e-6);
  return scale > 1 ? 1 : scale;  // NaN stays
}

}  // namespace dtensor::kernels
