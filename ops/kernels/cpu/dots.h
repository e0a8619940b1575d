// SPDX-License-Identifier: Apache-2.0
// Dot products of a few rows with many other rows, which are read only once.
// Private to ops/kernels.
#pragma once
#include <algorithm>
#include <cstdint>

#include "dtensor/ops/kernels/portable/rows.h"

namespace dtensor::kernels::cpu {
using namespace simd;

// The most rows and keys of a tile, whose sums are all in registers at once.
inline constexpr int kTileRows = kVecBytes == 64 ? 4 : 2, kTileKeys = 4;

// Lane i of the result is element at[i] of a, or element at[i] - n of b.
template <class T>
Vec<T> shuffled(Vec<T> a, Vec<T> b, typename Raw<T>::mask at) {
#ifdef __clang__  // it lacks __builtin_shuffle
  Vec<T> r;
  for (int64_t i = 0; i < Vec<T>::n; ++i)
    r.v[i] = at[i] < Vec<T>::n ? a.v[at[i]] : b.v[at[i] - Vec<T>::n];
  return r;
#else
  return __builtin_shuffle(a.v, b.v, at);
#endif
}

// Group g of 16 bytes of the result is that at from + g * step.
template <class T, class S>
Vec<T> groups(const S* from, [[maybe_unused]] int64_t step) {
#if defined(__AVX__)
  const auto at = [&](int64_t g) {
    return _mm_loadu_ps(reinterpret_cast<const float*>(from + g * step));
  };
#endif
#if defined(__AVX512F__)
  __m512 x = _mm512_castps128_ps512(at(0));
  x = _mm512_insertf32x4(x, at(1), 1);
  x = _mm512_insertf32x4(x, at(2), 2);
  return (typename Raw<T>::type)_mm512_insertf32x4(x, at(3), 3);
#elif defined(__AVX__)
  return (typename Raw<T>::type)_mm256_insertf128_ps(
      _mm256_castps128_ps256(at(0)), at(1), 1);
#else
  return load(reinterpret_cast<const T*>(from));
#endif
}

// Reads 16 bytes of each of Vec<T>::n rows: lane i of x[e] is element e of row
// i, or the pair e of its elements if they have half the size of T.
template <class T, class S>
inline void read_rows(const S* from, int64_t from_row,
                      Vec<T> (&x)[16 / sizeof(T)]) {
  constexpr int64_t n = Vec<T>::n, g = 16 / sizeof(T);
  // Within groups: the low, or the high, elements of two registers in turn.
  const auto lane = lane_numbers<T>(), in = lane & lanes<T>(g - 1);
  const auto low = (lane - in) + (in >> 1) + (in & 1) * lanes<T>(n),
             high = low + lanes<T>(g / 2);
  Vec<T> y[g];
  // x[e] has a group of each of the rows e, e + g, ...
#pragma GCC unroll 4
  for (int64_t e = 0; e < g; ++e)
    x[e] = groups<T>(from + e * from_row, g * from_row);
#pragma GCC unroll 2
  for (int64_t half = g / 2; half > 0; half /= 2) {
#pragma GCC unroll 2
    for (int64_t e = 0; e < g / 2; ++e) {
      y[2 * e] = shuffled(x[e], x[e + g / 2], low);
      y[2 * e + 1] = shuffled(x[e], x[e + g / 2], high);
    }
    std::copy_n(y, g, x);
  }
}

// to[p * to_row + i] = from[i * from_row + p] for i and p below Vec<T>::n.
template <class T>
inline void transpose(const T* from, int64_t from_row, T* to, int64_t to_row) {
  constexpr int64_t n = Vec<T>::n, g = 16 / sizeof(T);
#pragma GCC unroll 8
  for (int64_t p = 0; p < n; p += g) {
    Vec<T> x[g];
    read_rows<T>(from + p, from_row, x);
#pragma GCC unroll 4
    for (int64_t e = 0; e < g; ++e) store(to + (p + e) * to_row, x[e]);
  }
}
// The same for i < m and p < k, which are at most Vec<T>::n.
template <class T>
inline void transpose(int64_t m, int64_t k, const T* from, int64_t from_row,
                      T* to, int64_t to_row) {
  constexpr int64_t n = Vec<T>::n;
  if (m == n && k == n) return transpose(from, from_row, to, to_row);
  T square[n * n], transposed[n * n];
  for (int64_t i = 0; i < n; ++i)
    store(square + i * n, i < m ? load_n(from + i * from_row, k) : Vec<T>(0));
  transpose(square, n, transposed, n);
  for (int64_t p = 0; p < k; ++p)
    store_n(to + p * to_row, load(transposed + p * n), m);
}

// Lane i is a[i] + a[i ^ w] if i & w is 0, else b[i] + b[i ^ w].
template <class T>
Vec<T> merged(Vec<T> a, Vec<T> b, int64_t w) {
  const auto second = (lane_numbers<T>() & lanes<T>(w)) != 0;
  const Vec<T> kept = select(second, b, a), other = select(second, a, b);
  return kept + shuffled(other, other, lane_numbers<T>() ^ lanes<T>(w));
}

// to[i] = simd::sum(x[i]), with the same bits.
template <int K, class T>
void sums(const Vec<T>* x, T* to) {
  constexpr int64_t n = Vec<T>::n;
  if constexpr (K == 4 && n >= 4) {
    Vec<T> all =
        merged(merged(x[0], x[2], n / 2), merged(x[1], x[3], n / 2), n / 4);
    for (int w = n / 8; w > 0; w /= 2) all = all + rotated(all, w);
    for (int i = 0; i < 4; ++i) to[i] = all.v[i * n / 4];
  } else {
    for (int i = 0; i < K; ++i) to[i] = sum(x[i]);
  }
}

// Returns x in a register. The compiler would otherwise read x from memory for
// each product, and the core's loads, not its products, would be the limit.
template <class T>
Vec<T> in_register(Vec<T> x) {
#ifdef __x86_64__
  asm("" : "+v"(x.v));
#endif
  return x;
}

// Computes the dot products, over d elements, of R rows of q, `row` apart, with
// K keys, `stride` apart. Those of row r go to to[r * step + i], i < K. Their
// bits do not depend on R and K. If `ahead` is not 0, the keys `ahead` elements
// further on are fetched into the second-level cache.
template <int R, int K, class S, class T = compute_t<S>>
void dots(int64_t d, const T* q, int64_t row, const S* k, int64_t stride, T* to,
          int64_t step, int64_t ahead = 0) {
  using V = Vec<T>;
  V all[R][K];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int i = 0; i < K; ++i) all[r][i] = V(0);
  const auto add = [&](auto at) __attribute__((always_inline)) {
    V key[K];
#pragma GCC unroll 4
    for (int i = 0; i < K; ++i) key[i] = in_register(at(k + i * stride));
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const V x = in_register(at(q + r * row));
#pragma GCC unroll 4
      for (int i = 0; i < K; ++i) all[r][i] = fma(x, key[i], all[r][i]);
    }
  };
  constexpr int64_t kLine = 64 / sizeof(S);  // elements
  int64_t e = 0;
  if (ahead > 0)
    for (; e + kLine <= d; e += kLine) {
#pragma GCC unroll 4
      for (int i = 0; i < K; ++i)
        __builtin_prefetch(k + i * stride + e + ahead, 0, 2);
#pragma GCC unroll 8
      for (int64_t f = e; f < e + kLine; f += V::n)
        add([f](const auto* p) { return load(p + f); });
    }
  for (; e + V::n <= d; e += V::n)
    add([e](const auto* p) { return load(p + e); });
  if (e < d) add([e, d](const auto* p) { return load_n(p + e, d - e); });
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) sums<K>(all[r], to + r * step);
}

// Calls fn.template operator()<N>(i) for i from `from` on, in steps of N while
// N indices are left before n; then in steps of a half, a quarter, ... of N.
template <int N, class Fn>
void by(int64_t n, Fn&& fn, int64_t from = 0) {
  for (; from + N <= n; from += N) fn.template operator()<N>(from);
  if constexpr (N > 1) by<N / 2>(n, fn, from);
}

// As by(), but from 0 on, in the fewest steps of at most N, whose sizes differ
// by at most 1: a step of one row has too few sums to keep the multipliers
// busy.
template <int N, class Fn>
void evenly(int64_t n, Fn&& fn) {
  const auto call = [&]<int R>(auto& call, int64_t i, int64_t rows) {
    if constexpr (R > 0) {
      if (rows == R) return fn.template operator()<R>(i);
      call.template operator()<R - 1>(call, i, rows);
    }
  };
  int64_t i = 0;
  for (int64_t steps = (n + N - 1) / N; steps > 0; --steps) {
    const int64_t rows = (n - i + steps - 1) / steps;
    call.template operator()<N>(call, i, rows);
    i += rows;
  }
}

// to[i, j] = the product of row i of x [m, k] and row j of w [n, k]. Reads each
// row of w once from memory if m rows of x stay in the cache. Later rows of w
// are prefetched, at least kAhead bytes before they are needed: otherwise one
// core waits for half the time.
inline constexpr int64_t kAhead = 16 << 10;
template <class S, class T = compute_t<S>>
void few_rows(int64_t m, int64_t n, int64_t k, const T* x, int64_t x_row,
              const S* w, int64_t w_row, T* to, int64_t to_row) {
  const int64_t block = kTileKeys * w_row,
                ahead = (kAhead / int64_t{sizeof(S)} + block - 1) /
                        std::max<int64_t>(1, block) * block;
  by<kTileKeys>(n, [&]<int K>(int64_t j) {
    evenly<kTileRows>(m, [&]<int R>(int64_t i) {
      dots<R, K>(k, x + i * x_row, x_row, w + j * w_row, w_row,
                 to + i * to_row + j, to_row, ahead);
    });
  });
}

}  // namespace dtensor::kernels::cpu
