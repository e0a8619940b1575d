// SPDX-License-Identifier: Apache-2.0
// Convolutions as layers.
#pragma once
#include <cstdint>

#include "dtensor/nn/module.h"
#include "dtensor/ops/convolution.h"

namespace dtensor::nn {

// conv2d() with weight [out, in / groups, kernel...] and bias [out]. Both begin
// uniform in +-1 / sqrt(in / groups * kernel[0] * kernel[1]), as in torch.
// Throws Error if a size is below 1, or the groups do not divide the channels.
class Conv2d : public Module {
 public:
  Conv2d(const Scope& at, int64_t in, int64_t out, const PerDimension& kernel,
         ConvOptions = {}, bool bias = true);
  DistTensor forward(const DistTensor& x) const {
    return conv2d(x, weight_, bias_, options_);
  }

 private:
  ConvOptions options_;
  DistTensor weight_, bias_;
};

}  // namespace dtensor::nn
