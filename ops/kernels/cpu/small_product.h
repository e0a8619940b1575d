// SPDX-License-Identifier: Apache-2.0
// Matrix products whose second operand fits into the second-level cache.
// Private to ops/kernels.
#pragma once
#include <algorithm>
#include <cstdint>

#include "dtensor/ops/kernels/cpu/dots.h"
#include "dtensor/ops/kernels/cpu/gemm.h"
#include "dtensor/ops/kernels/cpu/loops.h"

namespace dtensor::kernels::cpu {

// c[m,n] = a[m,k] * b[k,n], or c +=, with every sum in the order of k. Only b
// may be copied, to scratch memory: if its rows are not contiguous, or do not
// fill registers. REQUIRES: c.col == 1.
template <class T>
class SmallProduct {
  using V = Vec<T>;
  // A tile's sums, a row of b and an element of a must fit into the registers.
  static constexpr bool k32Registers = kVecBytes == 64;
  static constexpr int kColumns = k32Registers ? 4 : 2;
  static constexpr int rows_of(int columns) { return columns == 1 ? 8 : 6; }

 public:
  static int64_t padded(int64_t n) { return (n + V::n - 1) / V::n * V::n; }
  // Whether b is not copied.
  static bool is_in_place(int64_t n, const Mat<const T>& b) {
    return b.col == 1 && b.row == n && padded(n) == n;
  }

  static void run(int64_t m, int64_t n, int64_t k, Mat<const T> a,
                  Mat<const T> b, Mat<T> c, bool accumulate) {
    const int64_t registers = padded(n) / V::n;
    const Mat<const T> full = filled(n, k, b);
    by<kColumns>(registers, [&]<int C>(int64_t first) {
      const int64_t j = first * V::n,
                    last = std::min(V::n, n - j - (C - 1) * V::n);
      evenly<rows_of(C)>(m, [&]<int R>(int64_t i) {
        tile<R, C>(k, {a.p + i * a.row, a.row, a.col},
                   {full.p + j, full.row, 1}, {c.p + i * c.row + j, c.row, 1},
                   last, accumulate);
      });
    });
  }

 private:
  // Returns b, or a copy with zeros at the end of each row.
  static Mat<const T> filled(int64_t n, int64_t k, Mat<const T> b) {
    const int64_t row = padded(n);
    if (b.col == 1 && row == n) return b;
    T* const to = scratch<T>(kScratchPackB, k * row);
    if (b.col == 1) {
      for (int64_t p = 0; p < k; ++p)
        for (int64_t j = 0; j < row; j += V::n)
          store(to + p * row + j,
                load_n(b.p + p * b.row + j, std::min(V::n, n - j)));
      return {to, row, 1};
    }
    // If b is a transpose, squares of V::n x V::n go through registers.
    const int64_t square = b.row == 1 ? V::n : n + k,
                  most_k = k / square * square, most_n = n / square * square;
    for (int64_t p = 0; p < most_k; p += V::n)
      for (int64_t j = 0; j < most_n; j += V::n)
        transpose(V::n, V::n, b.p + p + j * b.col, b.col, to + p * row + j,
                  row);
    for (int64_t p = 0; p < k; ++p) {
      for (int64_t j = p < most_k ? most_n : 0; j < n; ++j)
        to[p * row + j] = b.p[p * b.row + j * b.col];
      std::fill(to + p * row + n, to + (p + 1) * row, T(0));
    }
    return {to, row, 1};
  }

  // Computes R rows of c, each of C registers. The last register of a row
  // stores only `last` elements.
  template <int R, int C>
  static void tile(int64_t k, Mat<const T> a, Mat<const T> b, Mat<T> c,
                   int64_t last, bool accumulate) {
    V sum[R][C];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int i = 0; i < C; ++i) sum[r][i] = V(0);
    for (int64_t p = 0; p < k; ++p) {
      V x[C];
#pragma GCC unroll 4
      for (int i = 0; i < C; ++i)
        x[i] = in_register(load(b.p + p * b.row + i * V::n));
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        // Fills a vector with the element. The compiler drops minus 0, but not
        // plus 0, which turns -0 into 0.
        const V y =
            in_register(V(a.p[r * a.row + p * a.col] - typename V::R{}));
#pragma GCC unroll 4
        for (int i = 0; i < C; ++i) sum[r][i] = fma(y, x[i], sum[r][i]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int i = 0; i < C; ++i) {
        T* const to = c.p + r * c.row + i * V::n;
        const V s = sum[r][i];
        if (i < C - 1 || last == V::n)
          store(to, accumulate ? load(to) + s : s);
        else
          store_n(to, accumulate ? load_n(to, last) + s : s, last);
      }
  }
};

}  // namespace dtensor::kernels::cpu
