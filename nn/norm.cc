#include "dtensor/nn/layers.h"

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

RMSNorm::RMSNorm(const Scope& at, int64_t hidden, double eps)
    : Norm(at),
      weight_(add_parameter("weight", {hidden}, Init::ones())),
      eps_(eps) {}

Normed RMSNorm::normed(const DistTensor& x, const DistTensor& residual) const {
  if (!residual.defined()) return rms_norm_through(x, weight_, eps_);
  return add_rms_norm(x, residual, weight_, eps_);
}

}  // namespace dtensor::nn
