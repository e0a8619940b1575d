// SPDX-License-Identifier: Apache-2.0
// Products with weights of i8. For few rows of x, each weight is usually read
// once, as an i8. Otherwise one piece of the weights after the other is widened
// for a matrix product: i8 values are exact in every float type.
#include <algorithm>
#include <optional>

#include "dtensor/ops/kernels/gemm.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#ifdef __CUDACC__
#include "dtensor/ops/kernels/portable/lane_sums.cuh"
#else
#include "dtensor/ops/kernels/cpu/dots.h"
#endif

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::compute_t;
using portable::Row;
using portable::rows;
using portable::Scratch;

#ifdef __CUDACC__
// About how many weights are widened at once.
constexpr int64_t kPiece = 1 << 25;

// Computes the product for m <= M rows of x. Each block of threads reads x once
// for kRows rows of weights; each lane reads 16 weights of a row at once.
// REQUIRES: k is a multiple of 16, and x and the weights are 16-byte aligned.
template <int M, class S>
void int8_dots(Stream s, const Int8Linear& a) {
  using T = compute_t<S>;
  constexpr int kLanes = 128, kRows = sizeof(T) > 4 ? 2 : 4,
                kWarps = kLanes / portable::kWarp, kSums = M * kRows,
                kBytes = 16, W = portable::kPack<S>;
  portable::rows_of<kLanes, M == 8 ? 3 : 4>(
      s, (a.n + kRows - 1) / kRows, kLanes,
      DT_BODY(Row & row, int64_t r) {
        const int64_t j0 = r * kRows;
        const S* const x = static_cast<const S*>(a.x);
        T* const of_warps = row.fast<T>();
        row.each(kLanes, [&](int64_t index) {
          const int lane = static_cast<int>(index) % portable::kWarp,
                    warp = static_cast<int>(index) / portable::kWarp;
          T sums[kSums] = {};
          for (int64_t p = index * kBytes; p < a.k; p += kLanes * kBytes) {
            portable::Pack<int8_t, kBytes> weights[kRows] = {};
#pragma unroll
            for (int j = 0; j < kRows; ++j)
              if (j0 + j < a.n)
                weights[j] =
                    portable::load<kBytes>(a.weight + (j0 + j) * a.k + p);
#pragma unroll
            for (int b = 0; b < kBytes; b += W)
#pragma unroll
              for (int i = 0; i < M; ++i) {
                if (i >= a.m) break;
                const auto values = portable::load<W>(x + i * a.k + p + b);
#pragma unroll
                for (int w = 0; w < W; ++w)
#pragma unroll
                  for (int j = 0; j < kRows; ++j)
                    sums[i * kRows + j] += portable::widened(values.v[w]) *
                                           static_cast<T>(weights[j].v[b + w]);
              }
          }
          const T sum = sum_over_lanes(sums, lane, portable::kWarp);
          if (lane < kSums) of_warps[warp * kSums + lane] = sum;
        });
        row.each(kSums, [&](int64_t at) {
          const int64_t i = at / kRows, j = j0 + at % kRows;
          if (i >= a.m || j >= a.n) return;
          T sum = 0;
          for (int warp = 0; warp < kWarps; ++warp)
            sum += of_warps[warp * kSums + at];
          sum *= static_cast<const T*>(a.scale)[j];
          if (a.bias)
            sum += portable::widened(static_cast<const S*>(a.bias)[j]);
          static_cast<S*>(a.y)[i * a.n + j] = portable::rounded<S>(sum);
        });
      },
      kWarps * kSums * int64_t{sizeof(T)});
}

// Computes the product if int8_dots() can; returns whether it did.
template <class S>
bool few_rows(Stream s, const Int8Linear& a) {
  if (a.m > 8 || a.k % 16 != 0 || !portable::aligned(a.weight, 16) ||
      !portable::aligned(static_cast<const S*>(a.x), portable::kPack<S>))
    return false;
  if (a.m == 1)
    int8_dots<1, S>(s, a);
  else if (a.m == 2)
    int8_dots<2, S>(s, a);
  else if (a.m <= 4)
    int8_dots<4, S>(s, a);
  else
    int8_dots<8, S>(s, a);
  return true;
}
#else
constexpr int64_t kPiece = 1 << 19;
// Up to this many rows of x, it is faster not to widen the weights. bf16 has a
// lower limit, because its products are faster than those of f32.
template <class S>
constexpr int64_t kFewRows = std::is_same_v<S, bf16> ? 10 : 32;
#endif

// to = from, both [count, n], in the type of `to`.
template <class From, class To>
void widen(Stream s, int64_t count, int64_t n, const From* from, To* to) {
  rows(
      s, count, n, DT_BODY(Row & row, int64_t r) {
        row.map(
            n, to + r * n, [](auto v) { return v; }, from + r * n);
      });
}

// Writes columns [j0, j0 + n) of y. p [m, n] has their sums of products.
template <class S, class T = compute_t<S>>
void finish(Stream s, const Int8Linear& a, int64_t j0, int64_t n, const T* p) {
  const T* scale = static_cast<const T*>(a.scale) + j0;
  const S* bias = a.bias ? static_cast<const S*>(a.bias) + j0 : nullptr;
  S* const y = static_cast<S*>(a.y) + j0;
  const int64_t step = a.n;
  rows(
      s, a.m, n, DT_BODY(Row & row, int64_t r) {
        if (bias)
          row.map(
              n, y + r * step,
              [](auto sum, auto by, auto plus) { return sum * by + plus; },
              p + r * n, scale, bias);
        else
          row.map(
              n, y + r * step, [](auto sum, auto by) { return sum * by; },
              p + r * n, scale);
      });
}

template <class S>
void multiply(Stream s, const Int8Linear& a) {
  using T = compute_t<S>;
#ifdef __CUDACC__
  if (few_rows<S>(s, a)) return;
#endif
  const int64_t m = a.m, k = a.k,
                most = std::clamp<int64_t>(kPiece / std::max<int64_t>(1, k), 64,
                                           std::max<int64_t>(64, a.n));
  Scratch sums(s, m * most * int64_t{sizeof(T)});
  T* const p = sums.as<T>();
  std::optional<Scratch> copy;
  Gemm g{.type = a.type, .c_type = stat_of(a.type), .m = m, .k = k};
  g.a = a.x, g.a_m = k, g.a_k = 1;
  g.b_k = 1, g.b_n = k;
  g.c = p, g.c_n = 1;
#ifndef __CUDACC__
  const bool few = m <= kFewRows<S> && std::is_same_v<T, float>;
  const T* x = static_cast<const T*>(a.x);  // used if S is T
  if (few && !std::is_same_v<S, T>) {
    T* const to = copy.emplace(s, m * k * int64_t{sizeof(T)}).template as<T>();
    widen(s, m, k, static_cast<const S*>(a.x), to);
    x = to;
  }
#endif
  for (int64_t j = 0, n; j < a.n; j += n) {
    n = std::min(most, a.n - j);
    const int8_t* w = a.weight + j * k;
#ifndef __CUDACC__
    if constexpr (std::is_same_v<T, float>)
      if (few) {
        cpu::few_rows(m, n, k, x, k, w, k, p, n);
        finish<S>(s, a, j, n, p);
        continue;
      }
#endif
    if (!copy) copy.emplace(s, most * k * int64_t{sizeof(S)});
    widen(s, n, k, w, copy->template as<S>());
    g.n = g.c_m = n;
    g.b = copy->template as<S>();
    defined_kernels().run(s, g);
    finish<S>(s, a, j, n, p);
  }
}

}  // namespace

DT_KERNEL(Int8Linear)
void run(Stream s, const Int8Linear& a) {
  if (a.m == 0 || a.n == 0) return;
  visit_float(a.type, "int8_linear", [&]<class S>() { multiply<S>(s, a); });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
