#include "dtensor/nn/norm.h"

#include "dtensor/ops/norm.h"

namespace dtensor::nn {

LayerNorm::LayerNorm(const Scope& at, int64_t hidden, double eps)
    : Module(at),
      weight_(add_parameter("weight", {hidden}, Init::ones())),
      bias_(add_parameter("bias", {hidden}, Init::zeros())),
      eps_(eps) {}

DistTensor LayerNorm::forward(const DistTensor& x) const {
  return layer_norm(x, weight_, bias_, eps_);
}

RMSNorm::RMSNorm(const Scope& at, int64_t hidden, double eps)
    : Module(at),
      weight_(add_parameter("weight", {hidden}, Init::ones())),
      eps_(eps) {}

DistTensor RMSNorm::forward(const DistTensor& x) const {
  return rms_norm(x, weight_, eps_);
}

}  // namespace dtensor::nn
