// SPDX-License-Identifier: Apache-2.0
// Convolution, as neural networks define it: without reversing the weight.
#pragma once
#include <array>
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// Three tensors of one type (neither bool nor i8), all contiguous:
//   x       [b, groups * c, in...]
//   weight  [groups * o, c, kernel...]
//   y       [b, groups * o, out...]
// They have three dimensions of space each. Use size 1 for those that a call
// does not need. In each dimension of space, the product
//   x[b, g, c, i] * weight[g, o, c, k]  belongs to  y[b, g, o, m]
// if i = m * stride + k * dilation - pad. Other products do not exist: x counts
// as 0 outside of `in`, and y outside of `out`.
//
// Sums these products into `made`: over c and k for y (plus the bias of the
// channel, if there is one), over o and k for x, and over b and m for the
// weight. `made` takes the place of the tensor whose pointer is not used.
struct Convolution {
  enum class Makes : uint8_t { kY, kX, kWeight };
  using Space = std::array<int64_t, 3>;
  Makes makes = Makes::kY;
  DType type = DType::kF32;
  int64_t b = 0, groups = 1, c = 0, o = 0;
  Space in = {1, 1, 1}, out = {1, 1, 1}, kernel = {1, 1, 1};
  Space stride = {1, 1, 1}, dilation = {1, 1, 1};
  Space pad = {0, 0, 0};  // in front; may be negative
  const void *x = nullptr, *weight = nullptr, *y = nullptr;
  const void* bias = nullptr;  // [groups * o], for y only
  void* made = nullptr;
};

}  // namespace dtensor::kernels
