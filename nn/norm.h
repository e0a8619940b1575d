// Layer norm and RMS norm over the last dimension.
#pragma once
#include "dtensor/nn/module.h"
#include "dtensor/ops/norm.h"

namespace dtensor::nn {

// Both take x [..., hidden] and return the same shape. Blocks call normed(), so
// a class that replaces one of these (Module::replace) overrides normed().
class LayerNorm : public Module {
 public:
  LayerNorm(const Scope& at, int64_t hidden, double eps = 1e-5);
  virtual DistTensor forward(const DistTensor& x) const final;
  // Returns the sum x + residual and its norm. If residual is undefined, it
  // returns x and its norm, with x in the layout that the norm used (partial
  // sums already reduced).
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
