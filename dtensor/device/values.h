// SPDX-License-Identifier: Apache-2.0
// Values in portable kernels: the type in which they are computed, and
// conversions to and from it.
#pragma once
#include <cstdint>
#include <limits>
#include <type_traits>

#include "dtensor/placement/dtype.h"

#ifndef DT_HD
#ifdef __CUDACC__
#define DT_HD __host__ __device__
#else
#define DT_HD
#endif
#endif

// DT_UNROLL(n) before a loop: GPU code unrolls n iterations.
#ifdef __CUDA_ARCH__
#define DT_PRAGMA(text) _Pragma(#text)
#define DT_UNROLL(n) DT_PRAGMA(unroll n)
#else
#define DT_UNROLL(n)
#endif

namespace dtensor::portable {

using dtensor::is_half;
template <class T>
inline constexpr bool is_floating = std::is_floating_point_v<T> || is_half<T>;

// The type in which values of type T are computed: f32 for f16, bf16 and i8,
// otherwise T.
template <class T>
using compute_t =
    std::conditional_t<is_half<T> || std::is_same_v<T, int8_t>, float, T>;

template <class T>
DT_HD inline compute_t<T> widened(T x) {
  return static_cast<compute_t<T>>(x);
}
// Returns x rounded to type T, to nearest even. Not for i8: C++ would truncate.
template <class T>
DT_HD inline T rounded(compute_t<T> x) {
  return static_cast<T>(x);
}

// Two results of one function, such as two sums.
template <class T>
struct Two {
  T first{}, second{};
  DT_HD friend Two operator+(const Two& a, const Two& b) {
    return {a.first + b.first, a.second + b.second};
  }
};

// The lowest and highest values of T: infinities if T is float or double. Not
// for f16 and bf16.
template <class T>
DT_HD constexpr T lowest() {
  if constexpr (std::is_floating_point_v<T>)
    return -std::numeric_limits<T>::infinity();
  else
    return std::numeric_limits<T>::lowest();
}
template <class T>
DT_HD constexpr T highest() {
  if constexpr (std::is_floating_point_v<T>)
    return std::numeric_limits<T>::infinity();
  else
    return std::numeric_limits<T>::max();
}

}  // namespace dtensor::portable
