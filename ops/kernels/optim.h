// SPDX-License-Identifier: Apache-2.0
// Optimizer steps. One kernel updates any number of parameters of one type,
// with gradients of one type. The arrays of the parameters must not overlap.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// The rows of a matrix that a step updates: for each of the `count` distinct
// ids in device memory, row id - lo + at if lo <= id < hi, else none.
struct OptimRows {
  int64_t count = 0;
  const int64_t* ids = nullptr;  // null: the step updates all elements
  int64_t lo = 0, hi = 0, at = 0;
  int64_t stride = 0;  // of the parameter's rows, in elements
};

// One parameter of a step, with n contiguous elements. m, v and master have the
// type stat_of(the parameter's type). If there is a master copy (for half
// types), the step updates the master, and then rounds it to param. With
// rows.ids, the arrays are matrices with rows of n elements, and only param's
// need not be contiguous; grad has rows.count rows, one for each id.
struct OptimPart {
  int64_t n = 0;
  void* param = nullptr;
  const void* grad = nullptr;
  void *m = nullptr, *v = nullptr;  // sgd: m is the momentum buffer, or null
  void* master = nullptr;
  double lr = 1e-3, weight_decay = 0;
  int64_t step = 1;  // counts from 1; only adamw reads it
  // Null, or values in device memory that change at every step, for a step that
  // is captured into a graph once and then runs many times. lr is multiplied by
  // rates[0]; adamw takes rates[1] for 1 - beta1^step, and rates[2] for 1 -
  // beta2^step.
  const double* rates = nullptr;
  OptimRows rows = {};
};

// torch.optim.AdamW: decoupled weight decay, bias correction. grad has param's
// type, or f32 for half types. It is first multiplied by grad_scale, and by
// *clip, a number in device memory (null: 1).
struct AdamW {
  DType param_type = DType::kF32, grad_type = DType::kF32;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double grad_scale = 1;
  const double* clip = nullptr;
  std::span<const OptimPart> parts = {};
};

// torch.optim.SGD: g = grad * grad_scale * *clip + weight_decay * p; buffer (0
// at first) = momentum * buffer + g; p -= lr * buffer, or with `nesterov`, lr *
// (g + momentum * buffer). If m is null, p -= lr * g.
struct Sgd {
  DType param_type = DType::kF32, grad_type = DType::kF32;
  double momentum = 0;
  bool nesterov = false;
  double grad_scale = 1;
  const double* clip = nullptr;
  std::span<const OptimPart> parts = {};
};

// Throws Error, headed by `where`, unless grad is param or stat_of(param). It
// is a function of its own because nvcc cannot compile error.h.
void check_gradient_type(std::string_view where, DType param, DType grad);

// *norm = sqrt(*squares); *clip = min(1, max_norm / (*norm + 1e-6)), the factor
// that scales a gradient with this norm down to max_norm. *clip is 1 if
// max_norm is 0, else NaN if the norm is. All pointers are to device memory.
struct Clip {
  const double* squares = nullptr;
  double max_norm = 0;
  double* norm = nullptr;
  double* clip = nullptr;
};

}  // namespace dtensor::kernels
