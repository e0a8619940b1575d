// Steps of optimizers.
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// torch.optim.AdamW, of n contiguous elements: decoupled decay, bias
// correction; `step` counts from 1. m, v and master are `stat` of the
// parameter's type. With a master (for the halves), the master is what is
// updated, and param its rounding. grad is of param's type, or f32; it is first
// multiplied by grad_scale, and by *clip (null: 1), a number of the device.
struct AdamW {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0.01;
  int64_t step = 1;
  double grad_scale = 1;
  const double* clip = nullptr;
};

// torch.optim.SGD: g = grad grad_scale *clip + weight_decay p; the buffer
// (null: none; `stat`, zeros at first) becomes momentum buffer + g; p -= lr
// buffer, with nesterov lr (g + momentum buffer).
struct Sgd {
  double lr = 1e-3, momentum = 0, weight_decay = 0;
  bool nesterov = false;
  double grad_scale = 1;
  const double* clip = nullptr;
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
  // *norm = the root of *squares, *clip = min(1, max_norm / (*norm
  // + 1e-6)): what brings a gradient of that norm down to max_norm. NaN when
  // the norm is; 1 for a max_norm of 0. All of the device.
  virtual void clip(Stream, const double* squares, double max_norm,
                    double* norm, double* clip) const = 0;
};

}  // namespace dtensor::kernels
