// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/layers.h"
#include "dtensor/ops/pointwise.h"

namespace dtensor::nn {

LayerNorm::LayerNorm(const Scope& at, int64_t hidden, double eps)
    : Norm(at),
      weight_(add_parameter("weight", {hidden}, Init::ones())),
      bias_(add_parameter("bias", {hidden}, Init::zeros())),
      eps_(eps) {}

Normed LayerNorm::normed(const DistTensor& x,
                         const DistTensor& residual) const {
  if (!residual.defined()) return layer_norm_through(x, weight_, bias_, eps_);
  return add_layer_norm(x, residual, weight_, bias_, eps_);
}

RMSNorm::RMSNorm(const Scope& at, int64_t hidden, double eps, bool plus_one)
    : Norm(at),
      weight_(add_parameter("weight", {hidden},
                            plus_one ? Init::zeros() : Init::ones())),
      eps_(eps),
      plus_one_(plus_one) {}

Normed RMSNorm::normed(const DistTensor& x, const DistTensor& residual) const {
  const DistTensor weight = plus_one_ ? weight_ + 1.0 : weight_;
  if (!residual.defined()) return rms_norm_through(x, weight, eps_);
  return add_rms_norm(x, residual, weight, eps_);
}

}  // namespace dtensor::nn
