// SPDX-License-Identifier: Apache-2.0
// Elements of rows, selected by their order or by an index.
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"
#include "dtensor/ops/kernels/reduce.h"

namespace dtensor::kernels {

// The k largest (or smallest) elements of each row, best first, and their ids.
// Among equal elements, lower ids come first. A NaN counts as largest. Element
// i has the id ids[row, i], or first + i if `ids` is null. All but x is
// contiguous. Takes all dtypes but bool. REQUIRES: k <= n, and the ids of a row
// are distinct.
struct TopK {
  Matrix x;
  const int64_t* ids = nullptr;
  int64_t first = 0;
  int64_t k = 0;
  bool largest = true;
  void* values = nullptr;
  int64_t* value_ids = nullptr;
};

// out[r, j] = x[r, index[r, j] - lo] if lo <= index[r, j] < hi, else 0. out and
// index are [rows, k], contiguous. `ends`, if not null, gets the largest index
// outside of [lo, hi) and ~ of the smallest, as in CeRange. Takes all dtypes.
struct TakeRows {
  Matrix x;
  int64_t k = 0;
  const int64_t* index = nullptr;
  int64_t lo = 0, hi = 0;
  void* out = nullptr;
  int64_t* ends = nullptr;
};

// The transpose of TakeRows: sets dx [rows, hi - lo] to 0 unless `accumulate`,
// then adds dy[r, j] to dx[r, index[r, j] - lo] if lo <= index[r, j] < hi, in
// order of j. Another kind multiplies, or takes the larger or smaller number;
// a NaN stays. All but dy is contiguous. Takes all dtypes but bool.
struct PutRows {
  ReduceKind kind = ReduceKind::kSum;
  bool accumulate = false;
  Matrix dy;
  const int64_t* index = nullptr;
  int64_t lo = 0, hi = 0;
  void* dx = nullptr;
  int64_t* ends = nullptr;  // as in TakeRows
};

// Writes first + j to places[r, index[r, j] - lo], in order of j, if lo <=
// index[r, j] < hi: the last of equal indices wins. Other places keep their
// value. index [rows, k] has the stride `stride`; places [rows, hi - lo] is
// contiguous.
struct LastPlaces {
  int64_t rows = 0, k = 0;
  const int64_t* index = nullptr;
  int64_t stride = 0;
  int64_t first = 0;
  int64_t lo = 0, hi = 0;
  int64_t* places = nullptr;
};

// out[r, j] = the number of elements of row r of x that come before v =
// values[r, j]: those below v or, if `equal`, not above it. All come before a
// NaN, and a NaN comes before nothing else. x is sorted; out and values are
// [rows, k], contiguous, and values has x's type. Takes all dtypes but bool.
struct CountBefore {
  Matrix x;
  int64_t k = 0;
  const void* values = nullptr;
  bool equal = false;
  int64_t* out = nullptr;
};

}  // namespace dtensor::kernels
