// SPDX-License-Identifier: Apache-2.0
// Operands that many kernels have.
#pragma once
#include <array>
#include <cstdint>
#include <type_traits>

#include "dtensor/ops/functions/math.h"
#include "dtensor/placement/dtype.h"

namespace dtensor::kernels {

// An operand [rows, n] whose rows are contiguous; `stride` leads from one row
// to the next. For the kernels of rows.h, `inner` rows may lie side by side:
// then it is [rows / inner, n, inner], and `stride` is its first stride.
struct Matrix {
  DType type = DType::kF32;
  int64_t rows = 0, n = 0;
  const void* data = nullptr;
  int64_t stride = 0;
  int64_t inner = 1;
};

// Returns row r of a matrix; null if the matrix is empty and has no address.
template <class T>
DT_HD T* row_at(T* p, int64_t r, int64_t stride) {
  return p ? p + r * stride : p;
}
template <class S>
DT_HD const S* row_at(const Matrix& m, int64_t r) {
  return row_at(static_cast<const S*>(m.data), r, m.stride);
}

// The sum of two elements. Integers wrap around.
template <class T>
DT_HD T sum_of(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return (fn::Int<T>(a) + fn::Int<T>(b)).v;
  else
    return a + b;
}

// [batch, heads, sequence, head size], strides in this order; the last is 1.
template <class P>
struct Heads {
  P* data = nullptr;
  std::array<int64_t, 4> strides = {};
};
using HeadsIn = Heads<const void>;
using HeadsOut = Heads<void>;

}  // namespace dtensor::kernels
