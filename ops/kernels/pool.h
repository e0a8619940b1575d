// SPDX-License-Identifier: Apache-2.0
// The maximum of each window, and what its gradients need; and all elements of
// each window.
#pragma once
#include <array>
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// x is [planes, in...] and y [planes, out...], both contiguous and of one
// type, not bool. They have three dimensions of space; use size 1 for those
// that a call does not need. In each dimension, position i of x meets position
// m of y through tap k < kernel if i = m * stride + k * dilation - pad. `pad`
// may be negative. `taps` [planes, out...] has a tap for each element of y, in
// row-major order of `kernel`.
struct Pool {
  using Space = std::array<int64_t, 3>;
  DType type = DType::kF32;
  int64_t planes = 0;
  Space in = {1, 1, 1}, out = {1, 1, 1}, kernel = {1, 1, 1};
  Space stride = {1, 1, 1}, dilation = {1, 1, 1}, pad = {0, 0, 0};
};

// y = the largest element of x that each element of y meets, and its tap: the
// first tap of equal ones. NaN is the largest. If y meets none, its element is
// the smallest value of the type (-inf for floats), and its tap is 0.
struct PoolMax {
  Pool of;
  const void* x = nullptr;
  void* y = nullptr;
  int64_t* taps = nullptr;
};
// y = the element of x at the tap; 0 if that is outside of x.
struct PoolPick {
  Pool of;
  const void* x = nullptr;
  const int64_t* taps = nullptr;
  void* y = nullptr;
};
// x = the sum of the elements of y that meet it through their taps.
struct PoolSpread {
  Pool of;
  const void* y = nullptr;
  const int64_t* taps = nullptr;
  void* x = nullptr;
};
// y [planes, taps, out...] = the element of x that each element meets; 0 if
// that is outside of x.
struct Unfold {
  Pool of;
  const void* x = nullptr;
  void* y = nullptr;
};
// x = the sum of the elements of y [planes, taps, out...] that meet it.
struct Fold {
  Pool of;
  const void* y = nullptr;
  void* x = nullptr;
};

}  // namespace dtensor::kernels
