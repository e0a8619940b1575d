// SPDX-License-Identifier: Apache-2.0
// The factor by which gradients are clipped, for the kernels of all devices.
#pragma once

#include "dtensor/ops/functions/math.h"

namespace dtensor::kernels {

// The factor that scales gradients with this norm down to max_norm: min(1,
// max_norm / (norm + 1e-6)), as in torch.nn.utils.clip_grad_norm_. It is 1 if
// max_norm is 0, else NaN if the norm is.
DT_HD inline double clip_of(double norm, double max_norm) {
  if (max_norm == 0) return 1;
  const double scale = max_norm / (norm + 1e-6);
  return scale > 1 ? 1 : scale;  // keeps NaN
}

}  // namespace dtensor::kernels
