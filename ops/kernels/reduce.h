// SPDX-License-Identifier: Apache-2.0
// Reductions of one tensor over some of its dimensions.
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

enum class ReduceKind : uint8_t { kSum, kMax, kMin, kProd };

// The type in which ScanRows accumulates: f64 for floats, else i64.
constexpr DType scan_type_of(DType t) {
  return is_float(t) ? DType::kF64 : DType::kI64;
}

// Reduces the dimensions with a bit (1 << dim) in `dims`. out is contiguous
// over the other dimensions. Takes all dtypes, except the sum of bools; for
// bools, max is "any", and min and prod are "all". Integer sums wrap around. An
// empty sum is 0, max the lowest value (-inf), min the highest (+inf), and prod
// 1. A NaN makes the max and min NaN.
struct Reduce {
  ReduceKind kind = ReduceKind::kSum;
  DType type = DType::kF32;
  Shape shape = {};
  const void* in = nullptr;
  Shape strides = {};
  uint32_t dims = 0;
  void* out = nullptr;
};

// Adds the sum of squares of n contiguous floats to *sum (f64). Short pieces
// may be summed in stat_of(type); their sums are added in f64.
struct SumSquares {
  DType type = DType::kF32;
  int64_t n = 0;
  const void* x = nullptr;
  void* sum = nullptr;
};

// Running sums of rows, or running maxima, minima or products. out[j] = the
// row's carry plus the sum of the elements up to j (with `reverse`, from j on).
// total = the row's carry plus the sum of the whole row. All but x is
// contiguous. carry and total [rows] have type scan_type_of(x.type). carry, out
// and total may be null. Takes all dtypes but bool. Integer sums and products
// wrap around. Maxima and minima are NaN from a NaN on.
struct ScanRows {
  ReduceKind kind = ReduceKind::kSum;
  Matrix x;
  bool reverse = false;
  const void* carry = nullptr;
  void* out = nullptr;
  void* total = nullptr;
};

// Running sums of exponentials of rows, which do not overflow. Let s[j] be the
// row's carry plus the sum of weight[i] * exp(x[i]) over the elements i up to j
// (with `reverse`, from j on). Then out[j] = s[j] * exp(scale[j]), or log(s[j])
// if scale.data is null. total = s of the whole row. An exponential is 0 if its
// exponent has a part that is -inf. If weight.data is null, the weights are 1.
// carry and total [rows, 2] are f64; (m, t) stands for t * exp(m). carry, out
// and total are contiguous and may be null. Takes floats; x, weight and scale
// have one type.
struct ScanExp {
  Matrix x = {}, weight = {}, scale = {};
  bool reverse = false;
  const void* carry = nullptr;
  void* out = nullptr;
  void* total = nullptr;
};

}  // namespace dtensor::kernels
