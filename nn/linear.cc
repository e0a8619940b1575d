// SPDX-License-Identifier: Apache-2.0
#include <typeinfo>

#include "dtensor/nn/layers.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/placement/error.h"

namespace dtensor::nn {

Linear::Linear(const Scope& at, int64_t in, int64_t out, bool bias)
    : Module(at),
      weight_(add_parameter("weight", {out, in}, Init::fan_in(in),
                            at.int8_weights ? DType::kI8 : at.dtype)) {
  if (at.int8_weights)
    scale_ = add_parameter("weight_scale", {out}, Init::ones(),
                           at.dtype == DType::kF64 ? DType::kF64 : DType::kF32);
  if (bias) bias_ = add_parameter("bias", {out}, Init::zeros());
}

Linear::Linear(const Scope& at, const DistTensor& weight,
               const DistTensor& bias)
    : Module(at), weight_(adopt_parameter("weight", weight)) {
  DT_CHECK(is_float(weight.dtype()), "linear",
           "the weight is {}, whose scale is a parameter of another Linear; "
           "pass a weight of a float type",
           weight.spec()->to_string());
  if (bias.defined()) bias_ = adopt_parameter("bias", bias);
}

DistTensor Linear::forward(const DistTensor& x) const {
  if (scale_.defined()) return int8_linear(x, weight_, scale_, bias_);
  return linear(x, weight_, bias_);
}

DistTensor Linear::forward(const DistTensor& x, Activation then) const {
  if (typeid(*this) == typeid(Linear) && !scale_.defined())
    return linear(x, weight_, bias_, then);
  const DistTensor y = forward(x);
  return then == Activation::kGeluTanh ? gelu_tanh(y) : y;
}

}  // namespace dtensor::nn
