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

// out[0] = f(in...) for n elements; functions with two results also set out[1].
// An output may be one of the inputs.
using Loop = void (*)(const double* p, int64_t n, const void* const* in,
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
inline void registers(int64_t n, const void* const* in, void* const* out, F f) {
  using V = Vec<T>;
  const T* x[3] = {};
  for (int a = 0; a < operands; ++a) x[a] = static_cast<const T*>(in[a]);
  auto* o = static_cast<T*>(out[0]);
  auto at = [&](auto get) {
    if constexpr (operands == 1) return f(get(x[0]));
    if constexpr (operands == 2) return f(get(x[0]), get(x[1]));
    if constexpr (operands == 3) return f(get(x[0]), get(x[1]), get(x[2]));
  };
  const auto put = [&](const auto& result, auto set) {
    if constexpr (std::is_same_v<decltype(result), const V&>) {
      set(o, result);
    } else {
      set(o, result[0]);
      set(static_cast<T*>(out[1]), result[1]);
    }
  };
  int64_t i = 0;
  for (; i + V::n <= n; i += V::n)
    put(at([&](const T* p) { return load(p + i); }),
        [&](T* to, V v) { store(to + i, v); });
  // The tail uses a whole register, so that a value's bits do not depend on its
  // position. It is padded with 1, for which few functions are slow.
  if (const int64_t m = n - i)
    put(at([&](const T* p) { return load_n(p + i, m, T(1)); }),
        [&](T* to, V v) { store_n(to + i, v, m); });
}

template <class F, class T, int k>
void unary_items(const double* p, int64_t n, const void* const* in,
                 void* const* out) {
  using V = Vec<T>;
  if constexpr (k > 0) {
    registers<2, T>(n, in, out,
                    [p](V x, V dy) { return fn::derivative<F, k>(x, p) * dy; });
  } else if constexpr (std::is_floating_point_v<T> &&
                       !fn::facts<F>().gives_bool) {
    registers<1, T>(n, in, out, [p](V x) { return F::value(x, p); });
  } else {
    using S = scalar_t<T>;
    const auto* x = static_cast<const T*>(in[0]);
    auto* o = static_cast<decltype(stored<T>(F::value(S(x[0]), p)))*>(out[0]);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) o[i] = stored<T>(F::value(S(x[i]), p));
  }
}

template <class F, class T, fn::By by>
void binary_items(const double* p, int64_t n, const void* const* in,
                  void* const* out) {
  using V = Vec<T>;
  if constexpr (by == fn::By::kBoth) {
    registers<3, T>(n, in, out, [p](V a, V b, V dy) {
      return std::array<V, 2>{fn::derivative<F, fn::By::kA>(a, b, p) * dy,
                              fn::derivative<F, fn::By::kB>(a, b, p) * dy};
    });
  } else if constexpr (by != fn::By::kNone) {
    registers<3, T>(n, in, out, [p](V a, V b, V dy) {
      return fn::derivative<F, by>(a, b, p) * dy;
    });
  } else if constexpr (std::is_floating_point_v<T> &&
                       !fn::facts<F>().gives_bool) {
    registers<2, T>(n, in, out, [p](V a, V b) { return F::value(a, b, p); });
  } else {
    using S = scalar_t<T>;
    const auto* a = static_cast<const T*>(in[0]);
    const auto* b = static_cast<const T*>(in[1]);
    auto* o = static_cast<decltype(stored<T>(F::value(S(a[0]), S(b[0]), p)))*>(
        out[0]);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i)
      o[i] = stored<T>(F::value(S(a[i]), S(b[i]), p));
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
