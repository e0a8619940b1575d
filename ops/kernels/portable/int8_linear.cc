// SPDX-License-Identifier: Apache-2.0
// Products with weights of i8. On the host, few rows read each weight once.
// Otherwise a piece of the weights at a time is widened for a matrix product:
// its values are exact in every float type.
#include <algorithm>
#include <optional>

#include "dtensor/ops/kernels/gemm.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#ifndef __CUDACC__
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
constexpr int64_t kPiece = 1 << 25;  // weights that are widened at once
#else
constexpr int64_t kPiece = 1 << 19;
// As many rows as are better off without widened weights. Products of bf16 are
// faster than those of f32.
template <class S>
constexpr int64_t kFewRows = std::is_same_v<S, bf16> ? 10 : 32;
#endif

// to[r, ...] = from[r, ...], n each, in the type of `to`.
template <class From, class To>
void widen(Stream s, int64_t count, int64_t n, const From* from, To* to) {
  rows(
      s, count, n, DT_BODY(Row & row, int64_t r) {
        row.map(
            n, to + r * n, [](auto v) { return v; }, from + r * n);
      });
}

// Rows [j0, j0 + n) of the weights times x; p [m, n] are sums of products.
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
void multiply(Stream s, const Kernels& kernels, const Int8Linear& a) {
  using T = compute_t<S>;
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
  const T* x = static_cast<const T*>(a.x);  // if S is T
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
    kernels.run(s, g);
    finish<S>(s, a, j, n, p);
  }
}

}  // namespace

void PortableKernels::run(Stream s, const Int8Linear& a) const {
  if (a.m == 0 || a.n == 0) return;
  visit_float(a.type, "int8_linear",
              [&]<class S>() { multiply<S>(s, *this, a); });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
