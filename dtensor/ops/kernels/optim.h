// Steps of optimizers.
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// torch.optim.AdamW, of n contiguous elements: decoupled decay, bias
// correction; `step` counts from 1. m, v and master are `stat` of the
// parameter's type. With a master (for bf16), the master is what is updated,
// and param its rounding. grad is of param's type, or f32; it is first
// multiplied by grad_scale (clipping).
struct AdamW {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0.01;
  int64_t step = 1;
  double grad_scale = 1;
};

// torch.optim.SGD: g = grad grad_scale + weight_decay p; the buffer (null:
// none; `stat`, zeros at first) becomes momentum buffer + g; p -= lr buffer,
// with nesterov lr (g + momentum buffer).
struct Sgd {
  double lr = 1e-3, momentum = 0, weight_decay = 0;
  bool nesterov = false;
  double grad_scale = 1;
};

class OptimKernels {
 public:
  virtual ~OptimKernels() = default;
  virtual void adamw(Stream, DType param_type, DType grad_type, int64_t n,
                     const AdamW&, void* param, const void* grad, void* m,
                     void* v, void* master) const = 0;
  virtual void sgd(Stream, DType param_type, DType grad_type, int64_t n,
                   const Sgd&, void* param, const void* grad, void* buffer,
                   void* master) const = 0;
};

}  // namespace dtensor::kernels
