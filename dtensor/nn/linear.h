// y = x W^T + b.
#pragma once
#include "dtensor/nn/module.h"

namespace dtensor::nn {

// weight [out, in] as in PyTorch: column-parallel is S0, row-parallel S1 (its
// product is a partial sum, and the bias is added once, after the reduction).
class Linear : public Module {
 public:
  Linear(const Scope& at, int64_t in, int64_t out, bool bias = true);
  // With the parameters of another (`bias` may be undefined): what a class that
  // takes a Linear's place begins with.
  Linear(const Scope& at, const DistTensor& weight, const DistTensor& bias);
  // x [..., in] -> [..., out].
  virtual DistTensor forward(const DistTensor& x) const;
  const DistTensor& weight() const { return weight_; }
  const DistTensor& bias() const { return bias_; }  // undefined without one

 private:
  DistTensor weight_, bias_;
};

}  // namespace dtensor::nn
