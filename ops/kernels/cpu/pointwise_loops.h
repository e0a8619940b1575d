// SPDX-License-Identifier: Apache-2.0
// The contiguous loops of the element-wise kernels, in a table for each compute
// type. Private to ops/kernels.
#pragma once
#include <array>
#include <cstdint>
#include <type_traits>

#include "dtensor/ops/kernels/function_table.h"
#include "dtensor/ops/kernels/portable/vec_math.h"
#include "dtensor/ops/kernels/portable/vec_special.h"

namespace dtensor::kernels::cpu {
using namespace simd;

// The elements that a loop computes: rows of n, which follow each other in the
// outputs. Operand a moves by row[a] elements from row to row, and within a row
// by step[a], which is 1 or, if the loop computes whole registers, 0.
struct Span {
  int64_t rows = 1, n = 0;
  int64_t row[3] = {}, step[3] = {1, 1, 1};
};
// Whether the loop of a function computes whole registers.
template <class T>
inline bool in_whole_registers(bool gives_bool) {
  return std::is_floating_point_v<T> && !gives_bool;
}

// out[0] = f(in...); functions with two results also set out[1]. An output may
// be one of the inputs.
using Loop = void (*)(const double* p, const Span& span, const void* const* in,
                      void* const* out);

// unary_loop(): fn::UnaryFunctions[index], or its k-th derivative times in[1].
// binary_loop(): fn::BinaryFunctions[index], or its derivative `by` times
// in[2]. Null if there is no such kernel. T is float or double; or, for
// functions only, int32_t, int64_t or uint8_t (a bool).
template <class T, int k>
Loop unary_loop(int index);
template <class T, fn::By by>
Loop binary_loop(int index);

// Applies f to registers of `operands` arrays. f returns one result, or an
// array of two.
template <int operands, class T, class F>
inline void registers(const Span& s, const void* const* in, void* const* out,
                      F f) {
  using V = Vec<T>;
  // Copies, because GCC assumes that a store of a result may change `s`.
  const int64_t n = s.n, count = s.rows;
  V same[operands];  // a register of the element that a row repeats
  const T* x[3] = {};
  int64_t row[3] = {}, i = 0;
  bool repeats[3] = {};
  for (int a = 0; a < operands; ++a) {
    x[a] = static_cast<const T*>(in[a]);
    row[a] = s.row[a];
    repeats[a] = s.step[a] == 0;
  }
  const auto at = [&](auto get) {
    const auto of = [&](int a) { return repeats[a] ? same[a] : get(x[a] + i); };
    if constexpr (operands == 1) return f(of(0));
    if constexpr (operands == 2) return f(of(0), of(1));
    if constexpr (operands == 3) return f(of(0), of(1), of(2));
  };
  auto* const first = static_cast<T*>(out[0]);
  int64_t begin = 0;
  const auto put = [&](const auto& result, auto set) {
    if constexpr (std::is_same_v<decltype(result), const V&>) {
      set(first + begin + i, result);
    } else {
      set(first + begin + i, result[0]);
      set(static_cast<T*>(out[1]) + begin + i, result[1]);
    }
  };
  for (int64_t r = 0; r < count; ++r, begin += n) {
    for (int a = 0; a < operands; ++a)
      if (repeats[a]) same[a] = V(*x[a]);
    for (i = 0; i + V::n <= n; i += V::n)
      put(at([](const T* p) { return load(p); }),
          [](T* to, V v) { store(to, v); });
    // The tail uses a whole register, so that a value's bits do not depend on
    // its position. It is padded with 1, for which few functions are slow.
    if (const int64_t m = n - i)
      put(at([&](const T* p) { return load_n(p, m, T(1)); }),
          [&](T* to, V v) { store_n(to, v, m); });
    for (int a = 0; a < operands; ++a) x[a] += row[a];
  }
}

template <class F, class T, int k>
void unary_items(const double* p, const Span& s, const void* const* in,
                 void* const* out) {
  using V = Vec<T>;
  if constexpr (k > 0) {
    registers<2, T>(s, in, out,
                    [p](V x, V dy) { return fn::derivative<F, k>(x, p) * dy; });
  } else if constexpr (std::is_floating_point_v<T> &&
                       !fn::facts<F>().gives_bool) {
    registers<1, T>(s, in, out, [p](V x) { return F::value(x, p); });
  } else {
    using S = scalar_t<T>;
    const auto* x = static_cast<const T*>(in[0]);
    auto* o = static_cast<decltype(stored<T>(F::value(S(x[0]), p)))*>(out[0]);
    const auto row = [p, n = s.n](const T* from, auto* to) {
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i)
        to[i] = stored<T>(F::value(S(from[i]), p));
    };
    for (int64_t r = 0; r < s.rows; ++r) row(x + r * s.row[0], o + r * s.n);
  }
}

template <class F, class T, fn::By by>
void binary_items(const double* p, const Span& s, const void* const* in,
                  void* const* out) {
  using V = Vec<T>;
  if constexpr (by == fn::By::kBoth) {
    registers<3, T>(s, in, out, [p](V a, V b, V dy) {
      return std::array<V, 2>{fn::derivative<F, fn::By::kA>(a, b, p) * dy,
                              fn::derivative<F, fn::By::kB>(a, b, p) * dy};
    });
  } else if constexpr (by != fn::By::kNone) {
    registers<3, T>(s, in, out, [p](V a, V b, V dy) {
      return fn::derivative<F, by>(a, b, p) * dy;
    });
  } else if constexpr (std::is_floating_point_v<T> &&
                       !fn::facts<F>().gives_bool) {
    registers<2, T>(s, in, out, [p](V a, V b) { return F::value(a, b, p); });
  } else {
    using S = scalar_t<T>;
    const auto* a = static_cast<const T*>(in[0]);
    const auto* b = static_cast<const T*>(in[1]);
    auto* o = static_cast<decltype(stored<T>(F::value(S(a[0]), S(b[0]), p)))*>(
        out[0]);
    const auto row = [p, n = s.n](const T* x, const T* y, auto* to) {
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i)
        to[i] = stored<T>(F::value(S(x[i]), S(y[i]), p));
    };
    for (int64_t r = 0; r < s.rows; ++r)
      row(a + r * s.row[0], b + r * s.row[1], o + r * s.n);
  }
}

// Functions, because clang 14 does not call lambdas in constant expressions.
template <class F, class T, int k>
constexpr Loop unary_of() {
  if constexpr (has_kernel<F, T, k>()) return &unary_items<F, T, k>;
  return nullptr;
}
template <class F, class T, fn::By by>
constexpr Loop binary_of() {
  if constexpr (has_kernel<F, T, fn::order_of(by)>())
    return &binary_items<F, T, by>;
  return nullptr;
}

template <class T, int k, class... F>
Loop find_unary(fn::FunctionList<F...>, int index) {
  static constexpr Loop loops[] = {unary_of<F, T, k>()...};
  return loops[index];
}
template <class T, fn::By by, class... F>
Loop find_binary(fn::FunctionList<F...>, int index) {
  static constexpr Loop loops[] = {binary_of<F, T, by>()...};
  return loops[index];
}

// Each use of these macros defines one table, in a file for its type.
#define DT_UNARY_LOOPS(T, k)                              \
  template <>                                             \
  Loop unary_loop<T, k>(int index) {                      \
    return find_unary<T, k>(fn::UnaryFunctions(), index); \
  }
#define DT_BINARY_LOOPS(T, by)                               \
  template <>                                                \
  Loop binary_loop<T, by>(int index) {                       \
    return find_binary<T, by>(fn::BinaryFunctions(), index); \
  }

}  // namespace dtensor::kernels::cpu
