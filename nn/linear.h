// y = x W^T + b.
#pragma once
#include "dtensor/nn/module.h"
#include "dtensor/ops/linear.h"

namespace dtensor::nn {

// weight [out, in], as in PyTorch. Column-parallel is S0; row-parallel is S1,
// and the product is then a partial sum, to one part of which the bias is
// added.
class Linear : public Module {
 public:
  Linear(const Scope& at, int64_t in, int64_t out, bool bias = true);
  // Shares existing parameters (`bias` may be undefined), for a class that
  // replaces a Linear (Module::replace).
  Linear(const Scope& at, const DistTensor& weight, const DistTensor& bias);
  // x [..., in] -> [..., out].
  virtual DistTensor forward(const DistTensor& x) const;
  // The activation of forward(x). It is one fused operator, unless a derived
  // class overrides the layer.
  DistTensor forward(const DistTensor& x, Activation then) const;
  const DistTensor& weight() const { return weight_; }
  const DistTensor& bias() const { return bias_; }  // undefined if none

 private:
  DistTensor weight_, bias_;
};

}  // namespace dtensor::nn
