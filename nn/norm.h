// Layer norm and RMS norm over the last dimension.
#pragma once
#include "dtensor/nn/module.h"
#include "dtensor/ops/norm.h"

namespace dtensor::nn {

// Blocks call normed(), so that it is what a norm in the place of one of these
// overrides.
class LayerNorm : public Module {
 public:
  LayerNorm(const Scope& at, int64_t hidden, double eps = 1e-5);
  virtual DistTensor forward(const DistTensor& x) const final;
  // Of x + residual, and that sum; without a residual (an undefined one) of x,
  // and x where it was normed.
  virtual Normed normed(const DistTensor& x, const DistTensor& residual) const;

 private:
  DistTensor weight_, bias_;
  double eps_;
};

class RMSNorm : public Module {
 public:
  RMSNorm(const Scope& at, int64_t hidden, double eps = 1e-6);
  virtual DistTensor forward(const DistTensor& x) const final;
  virtual Normed normed(const DistTensor& x, const DistTensor& residual) const;

 private:
  DistTensor weight_;
  double eps_;
};

}  // namespace dtensor::nn
