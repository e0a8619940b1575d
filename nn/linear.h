// y = x W^T + b.
#pragma once
#include "dtensor/nn/module.h"
#include "dtensor/ops/linear.h"

namespace dtensor::nn {

// weight [out, in] as in PyTorch: column-parallel is S0, row-parallel S1 (its
// product is a partial sum, to one part of which the bias is added).
class Linear : public Module {
 public:
  Linear(const Scope& at, int64_t in, int64_t out, bool bias = true);
  // With the parameters of another (`bias` may be undefined): what a class that
  // takes a Linear's place begins with.
  Linear(const Scope& at, const DistTensor& weight, const DistTensor& bias);
  // x [..., in] -> [..., out].
  virtual DistTensor forward(const DistTensor& x) const;
  // The activation of that: one operator, unless a class derived from this one
  // computes the layer.
  DistTensor forward(const DistTensor& x, Activation then) const;
  const DistTensor& weight() const { return weight_; }
  const DistTensor& bias() const { return bias_; }  // undefined without one

 private:
  DistTensor weight_, bias_;
};

}  // namespace dtensor::nn
