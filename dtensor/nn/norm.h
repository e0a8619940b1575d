// Layer norm and RMS norm over the last dimension.
#pragma once
#include "dtensor/nn/module.h"

namespace dtensor::nn {

class LayerNorm : public Module {
 public:
  LayerNorm(const Scope& at, int64_t hidden, double eps = 1e-5);
  virtual DistTensor forward(const DistTensor& x) const;

 private:
  DistTensor weight_, bias_;
  double eps_;
};

class RMSNorm : public Module {
 public:
  RMSNorm(const Scope& at, int64_t hidden, double eps = 1e-6);
  virtual DistTensor forward(const DistTensor& x) const;

 private:
  DistTensor weight_;
  double eps_;
};

}  // namespace dtensor::nn
