// SPDX-License-Identifier: Apache-2.0
// Rows of a table by index.
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// For each of the `outer` matrices of `size` rows in `table`: row i of `out`
// becomes row ids[i] - lo + at of the matrix if lo <= ids[i] < hi, else zeros.
// If `bag` is not 1, row i is the sum of the rows that ids[i * bag] and the
// bag - 1 ids behind it name, in this order; then it takes f32 and f64. out is
// [outer, count, n]. ids are i32 or i64. Takes all dtypes.
struct Embedding {
  Matrix table;
  DType ids_type = DType::kI64;
  int64_t outer = 1, count = 0, bag = 1;
  const void* ids = nullptr;
  int64_t lo = 0, hi = 0, at = 0, size = 0;
  void* out = nullptr;
};

// Sets dtable [outer, size, n], contiguous, to zero unless `accumulate`. Then,
// for each of the `outer` matrices and in order of i, adds row i of dy [outer,
// count, n] to row ids[i] - lo + at of dtable if lo <= ids[i] < hi. Takes all
// dtypes but bool; dtable has dy's type, or f32 for half types, or
// exact, on the CPU, for f32 and half types.
struct EmbeddingBackward {
  Matrix dy;
  DType ids_type = DType::kI64;
  int64_t outer = 1;
  const void* ids = nullptr;
  int64_t lo = 0, hi = 0, at = 0, size = 0;
  DType dtable_type = DType::kF32;
  bool accumulate = false;
  void* dtable = nullptr;
};

// For each of the `outer` matrices: copies row i of `rows` [count, n] to row
// ids[i] - lo + at of `to` [size, n] if lo <= ids[i] < hi. If ids are equal,
// the CPU keeps the last one's row. ids are i32 or i64. Takes all dtypes, and
// i8. All arrays are contiguous.
struct WriteRows {
  DType type = DType::kF32;
  int64_t outer = 1, count = 0, n = 0;
  const void* rows = nullptr;
  DType ids_type = DType::kI64;
  const void* ids = nullptr;
  int64_t lo = 0, hi = 0, at = 0, size = 0;
  void* to = nullptr;
};

}  // namespace dtensor::kernels
