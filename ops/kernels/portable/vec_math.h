// SPDX-License-Identifier: Apache-2.0
// Functions of registers. Transcendental ones come from glibc's libmvec on x86
// (at most 4 ulp, exact at special values), else element by element from
// <cmath>. exp of floats is our own, because it matters most, and libmvec's is
// slow for the -inf of a masked softmax. With AVX-512, erf of floats is our own
// as well (vec_erf.h).
#pragma once
#include <cmath>

#include "dtensor/ops/kernels/portable/vec.h"
#include "dtensor/ops/kernels/portable/vec_erf.h"

namespace dtensor::simd {

// exp(x) = 2^k * exp(r), |r| <= ln(2) / 2, after Cephes; within 2 ulp. Returns
// exp(r), and sets *k.
inline F32v exp_reduced(F32v x, F32v* k) {
  using V = Vec<float>;
  const V magic(12582912.0);  // 1.5 * 2^23: rounds to an integer
  const V whole = fma(V(x), V(1.44269504088896341), magic) - magic;
  *k = whole.v;
  const V r = fma(whole, V(2.12194440e-4), fma(whole, V(-0.693359375), V(x)));
  V p = fma(r, V(1.9875691500e-4), V(1.3981999507e-3));
  p = fma(p, r, V(8.3334519073e-3));
  p = fma(p, r, V(4.1665795894e-2));
  p = fma(p, r, V(1.6666665459e-1));
  p = fma(p, r, V(5.0000001201e-1));
  return (fma(p * r, r, r) + V(1)).v;
}
// Returns p * 2^k, for k from -254 to 254, or with `normal`, from -126 to 127.
template <bool normal>
inline F32v times_power_of_2(F32v p, F32v k) {
#if defined(__AVX512F__)
  return (F32v)_mm512_maskz_scalef_ps(0xffff, (__m512)p, (__m512)k);
#else
  const I32v n = __builtin_convertvector(k, I32v);
  if constexpr (normal) return p * (F32v)((n + 127) << 23);
  // Two factors, because 2^k alone may overflow or be denormal.
  const I32v half = n >> 1;
  return p * (F32v)((half + 127) << 23) * (F32v)((n - half + 127) << 23);
#endif
}
inline Vec<float> exp(Vec<float> x) {
  using V = Vec<float>;
  F32v k;
  const F32v p = exp_reduced(max(V(-104), min(V(89), x)).v, &k);
  return times_power_of_2<false>(p, k);
}
// For softmax: x <= 0 (or NaN, or inf - inf). Denormal results become 0: they
// are slow to compute, and negligible beside the row's largest, which is 1.
inline Vec<float> exp_softmax(Vec<float> x) {
  constexpr float kLow = -87;
  F32v k;
  const F32v p = exp_reduced(max(Vec<float>(kLow), x).v, &k);
  return x.v < kLow ? F32v{} : times_power_of_2<true>(p, k);
}

#define DT_LANES2(T, name)                  \
  inline Vec<T> name(Vec<T> a, Vec<T> b) {  \
    Vec<T> r;                               \
    for (int64_t i = 0; i < Vec<T>::n; ++i) \
      r.v[i] = std::name(a.v[i], b.v[i]);   \
    return r;                               \
  }
#define DT_LANES(T, name)                                               \
  inline Vec<T> name(Vec<T> a) {                                        \
    Vec<T> r;                                                           \
    for (int64_t i = 0; i < Vec<T>::n; ++i) r.v[i] = std::name(a.v[i]); \
    return r;                                                           \
  }

#if defined(__x86_64__) && defined(__GLIBC__)
#if defined(__AVX512F__)
#define DT_MVEC(args, name) _ZGVeN##args##_##name
#elif defined(__AVX2__)
#define DT_MVEC(args, name) _ZGVdN##args##_##name
#elif defined(__AVX__)
#define DT_MVEC(args, name) _ZGVcN##args##_##name
#else
#define DT_MVEC(args, name) _ZGVbN##args##_##name
#endif
#if defined(__AVX512F__)
#define DT_MVEC32(v, name) DT_MVEC(16##v, name)
#define DT_MVEC64(v, name) DT_MVEC(8##v, name)
#elif defined(__AVX__)
#define DT_MVEC32(v, name) DT_MVEC(8##v, name)
#define DT_MVEC64(v, name) DT_MVEC(4##v, name)
#else
#define DT_MVEC32(v, name) DT_MVEC(4##v, name)
#define DT_MVEC64(v, name) DT_MVEC(2##v, name)
#endif
// Declares libmvec's function for this register size and wraps it.
#define DT_MATH(name)                                                         \
  extern "C" F32v DT_MVEC32(v, name##f)(F32v);                                \
  inline Vec<float> name(Vec<float> a) { return DT_MVEC32(v, name##f)(a.v); } \
  DT_MATH64(name)
#define DT_MATH2(name)                                    \
  extern "C" F32v DT_MVEC32(vv, name##f)(F32v, F32v);     \
  extern "C" F64v DT_MVEC64(vv, name)(F64v, F64v);        \
  inline Vec<float> name(Vec<float> a, Vec<float> b) {    \
    return DT_MVEC32(vv, name##f)(a.v, b.v);              \
  }                                                       \
  inline Vec<double> name(Vec<double> a, Vec<double> b) { \
    return DT_MVEC64(vv, name)(a.v, b.v);                 \
  }
#define DT_MATH64(name)                     \
  extern "C" F64v DT_MVEC64(v, name)(F64v); \
  inline Vec<double> name(Vec<double> a) { return DT_MVEC64(v, name)(a.v); }
#else
#define DT_MATH(name) DT_LANES(float, name) DT_MATH64(name)
#define DT_MATH2(name) DT_LANES2(float, name) DT_LANES2(double, name)
#define DT_MATH64(name) DT_LANES(double, name)
#endif
DT_MATH64(exp)
DT_MATH(exp2)
DT_MATH(expm1)
DT_MATH(log)
DT_MATH(log2)
DT_MATH(log10)
DT_MATH(log1p)
DT_MATH(sin)
DT_MATH(cos)
DT_MATH(tan)
DT_MATH(asin)
DT_MATH(acos)
DT_MATH(atan)
DT_MATH(sinh)
DT_MATH(cosh)
DT_MATH(tanh)
DT_MATH(asinh)
DT_MATH(acosh)
DT_MATH(atanh)
#if defined(__AVX512F__)
DT_MATH64(erf)
#else
DT_MATH(erf)
#endif
DT_MATH(erfc)
DT_MATH2(pow)
DT_MATH2(atan2)
DT_MATH2(hypot)
DT_LANES2(float, fmod)
DT_LANES2(double, fmod)
DT_LANES2(float, nextafter)
DT_LANES2(double, nextafter)
#undef DT_MATH2
#undef DT_MATH64
#undef DT_MATH

inline Vec<double> exp_softmax(Vec<double> x) {
  // Clamped, because libmvec is slow for the -inf of masked elements.
  const F64v low = F64v{} - 708.0;
  const Vec<double> e = exp(Vec<double>(x.v < low ? low : x.v));
  return x.v < low ? F64v{} : e.v;
}

// The intrinsics of AVX-512 are masked, because GCC warns about an undefined
// operand of the unmasked ones.
#if defined(__AVX512F__)
inline Vec<float> sqrt(Vec<float> a) {
  return (F32v)_mm512_maskz_sqrt_ps(0xffff, a.v);
}
inline Vec<double> sqrt(Vec<double> a) {
  return (F64v)_mm512_maskz_sqrt_pd(0xff, a.v);
}
template <int mode>
inline Vec<float> rounded(Vec<float> a) {
  return (F32v)_mm512_maskz_roundscale_ps(0xffff, a.v, mode);
}
template <int mode>
inline Vec<double> rounded(Vec<double> a) {
  return (F64v)_mm512_maskz_roundscale_pd(0xff, a.v, mode);
}
#elif defined(__AVX__)
inline Vec<float> sqrt(Vec<float> a) { return (F32v)_mm256_sqrt_ps(a.v); }
inline Vec<double> sqrt(Vec<double> a) { return (F64v)_mm256_sqrt_pd(a.v); }
template <int mode>
inline Vec<float> rounded(Vec<float> a) {
  return (F32v)_mm256_round_ps(a.v, mode | 8);
}
template <int mode>
inline Vec<double> rounded(Vec<double> a) {
  return (F64v)_mm256_round_pd(a.v, mode | 8);
}
#else
DT_LANES(float, sqrt)
DT_LANES(double, sqrt)
template <int mode, class T>
inline Vec<T> rounded(Vec<T> a) {
  Vec<T> r;
  for (int64_t i = 0; i < Vec<T>::n; ++i)
    r.v[i] = mode == 0   ? std::nearbyint(a.v[i])
             : mode == 1 ? std::floor(a.v[i])
             : mode == 2 ? std::ceil(a.v[i])
                         : std::trunc(a.v[i]);
  return r;
}
#endif
template <class T>
inline Vec<T> round(Vec<T> a) {
  return rounded<0>(a);
}
template <class T>
inline Vec<T> floor(Vec<T> a) {
  return rounded<1>(a);
}
template <class T>
inline Vec<T> ceil(Vec<T> a) {
  return rounded<2>(a);
}
template <class T>
inline Vec<T> trunc(Vec<T> a) {
  return rounded<3>(a);
}

template <class T>
inline Vec<T> pow(Vec<T> a, double p) {
  using V = Vec<T>;
  if (p == 0) return V(1);
  if (p == 1) return a;
  if (p == 2) return a * a;
  if (p == 3) return a * a * a;
  if (p == 0.5) return sqrt(a);
  if (p == -1) return V(1) / a;
  if (p == -2) return V(1) / (a * a);
  return pow(a, V(p));
}

}  // namespace dtensor::simd
