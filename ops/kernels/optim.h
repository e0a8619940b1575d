// Steps of optimizers.
#pragma once
#include <cstdint>
#include <span>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// One parameter of a step: n contiguous elements. m, v and master are `stat` of
// the parameter's type. With a master (for the halves), the master is what is
// updated, and param its rounding.
struct OptimPart {
  int64_t n = 0;
  void* param = nullptr;
  const void* grad = nullptr;
  void *m = nullptr, *v = nullptr;  // sgd: m is the buffer, or null
  void* master = nullptr;
  double lr = 1e-3, weight_decay = 0;
  int64_t step = 1;  // counts from 1; adamw alone
  // What is another at every step, in memory of the device, for work that is
  // given once and runs often: lr is multiplied by rates[0]; adamw takes
  // rates[1] and rates[2] for 1 - beta1^step and 1 - beta2^step.
  const double* rates = nullptr;
};

// torch.optim.AdamW: decoupled decay, bias correction. grad is of param's type,
// or f32; it is first multiplied by grad_scale, and by *clip (null: 1), a
// number of the device.
struct AdamW {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double grad_scale = 1;
  const double* clip = nullptr;
};

// torch.optim.SGD: g = grad grad_scale *clip + weight_decay p; the buffer
// (zeros at first) becomes momentum buffer + g; p -= lr buffer, with nesterov
// lr (g + momentum buffer).
struct Sgd {
  double momentum = 0;
  bool nesterov = false;
  double grad_scale = 1;
  const double* clip = nullptr;
};

class OptimKernels {
 public:
  virtual ~OptimKernels() = default;
  // Parameters of one type and gradients of one type, in any number; they share
  // no memory. The parts are read before the call returns.
  virtual void adamw(Stream, DType param_type, DType grad_type, const AdamW&,
                     std::span<const OptimPart>) const = 0;
  virtual void sgd(Stream, DType param_type, DType grad_type, const Sgd&,
                   std::span<const OptimPart>) const = 0;
  // *norm = the root of *squares, *clip = min(1, max_norm / (*norm
  // + 1e-6)): what brings a gradient of that norm down to max_norm. NaN when
  // the norm is; 1 for a max_norm of 0. All of the device.
  virtual void clip(Stream, const double* squares, double max_norm,
                    double* norm, double* clip) const = 0;
};

}  // namespace dtensor::kernels
