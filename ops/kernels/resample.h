// SPDX-License-Identifier: Apache-2.0
// Sums of a few neighbours along one dimension, with given weights.
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// y[o, m, r] = the sum over t < taps of weights[m, t] * x[o, first[m] + t, r].
// x is [outer, in, inner] and y [outer, out, inner], both contiguous and of one
// float type. An element of x with the weight 0 is not read.
struct Resample {
  DType type = DType::kF32;
  int64_t outer = 0, in = 0, out = 0, inner = 1, taps = 1;
  const int64_t* first = nullptr;   // [out]
  const double* weights = nullptr;  // [out, taps]
  const void* x = nullptr;
  void* y = nullptr;
};

}  // namespace dtensor::kernels
