// SPDX-License-Identifier: Apache-2.0
// Elements of rows, selected by their order or by an index.
#pragma once
#include <bit>
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

// out[r, j] = x[r, index[r / share, j] - lo] if lo <= that index < hi, else 0.
// out [rows, k] and index [rows / share, k] are contiguous. `ends`, if not
// null, gets the largest index outside of [lo, hi) and ~ of the smallest, as in
// CeRange. Takes all dtypes.
//
// With `weights` [taps, rows / share, k], `index` has the same shape, and out
// is the sum of weight * element over the taps. x and the weights are of one
// float type, and `ends` is null.
struct TakeRows {
  Matrix x;
  int64_t k = 0, share = 1, taps = 1;
  const void* weights = nullptr;
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

// A round of a radix selection, which finds the elements of given ranks in rows
// that several devices may hold in parts. Elements are ordered as TopK orders
// the smallest: a NaN is largest, and equal elements come in the order of their
// ids, which are 0 to size - 1 in a whole row. The order is that of keys, an
// unsigned integer as wide as x's type and then the id, whose digits have 8
// bits. Round i chooses digit i - 1 of each key, unless i is 0, and then counts
// the part's elements by digit i, unless i is select_rounds(). Between two
// rounds, the caller adds up `counts` over the parts.
//
// All arrays but x and ids are [rows, k]. Before the first round, `ranks` has
// the ranks, from 0 on, and `keys` and `found` are 0. After the last, `found`
// has the ids. If a row has no element of a rank, `found` has the rank itself.
struct SelectRound {
  Matrix x;
  const int64_t* ids = nullptr;  // of the columns of x; null: first + i
  int64_t first = 0;
  int64_t size = 0;
  int64_t k = 0;
  int64_t round = 0;
  int64_t* ranks = nullptr;  // of each element among those with its digits
  int64_t* keys = nullptr;   // the digits chosen so far
  int64_t* found = nullptr;
  DType count_type = DType::kI64;  // or i32
  void* counts = nullptr;          // [rows, k, kDigits]
  static constexpr int64_t kDigits = 256;
};
constexpr int64_t select_rounds(DType t, int64_t size) {
  return size_of(t) + (std::bit_width(static_cast<uint64_t>(size - 1)) + 7) / 8;
}

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
