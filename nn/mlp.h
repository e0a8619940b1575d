// The two kinds of feed-forward block: GPT-2's MLP and Llama's SwiGLU.
#pragma once
#include "dtensor/nn/linear.h"

namespace dtensor::nn {

// GPT-2: c_proj(gelu_tanh(c_fc(x))), with biases. [..., hidden] -> [...,
// hidden].
class MLP : public Module {
 public:
  MLP(const Scope& at, int64_t hidden, int64_t ffn);
  virtual DistTensor forward(const DistTensor& x) const;

 private:
  Child<Linear> c_fc_, c_proj_;
};

// Llama: down_proj(swiglu(gate_proj(x), up_proj(x))), without biases. [...,
// hidden] -> [..., hidden].
class SwiGLU : public Module {
 public:
  SwiGLU(const Scope& at, int64_t hidden, int64_t ffn);
  virtual DistTensor forward(const DistTensor& x) const;

 private:
  Child<Linear> gate_proj_, up_proj_, down_proj_;
};

}  // namespace dtensor::nn
