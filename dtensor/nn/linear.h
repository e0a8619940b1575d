// y = x W^T + b.
#pragma once
#include "dtensor/nn/module.h"

namespace dtensor::nn {

// weight [out, in] as in PyTorch: column-parallel is S0, row-parallel S1 (its
// product is a partial sum, and the bias is added once, after the reduction).
class Linear : public Module {
 public:
  Linear(const Scope& at, int64_t in, int64_t out, bool bias = true);
  // x [..., in] -> [..., out].
  DistTensor forward(const DistTensor& x) const;

 private:
  DistTensor weight_, bias_;
};

}  // namespace dtensor::nn
