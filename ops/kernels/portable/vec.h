// SPDX-License-Identifier: Apache-2.0
// A register of floats or doubles by GCC's vector extensions, with the
// operators that pointwise functions and row kernels use. vec_math.h has the
// mathematical functions.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "dtensor/device/values.h"

namespace dtensor::simd {

#if defined(__AVX512F__)
inline constexpr int kVecBytes = 64;
#elif defined(__AVX__)
inline constexpr int kVecBytes = 32;
#else
inline constexpr int kVecBytes = 16;
#endif

using F32v = float __attribute__((vector_size(kVecBytes)));
using F64v = double __attribute__((vector_size(kVecBytes)));
using I32v = int32_t __attribute__((vector_size(kVecBytes)));
using I64v = int64_t __attribute__((vector_size(kVecBytes)));
using U32v = uint32_t __attribute__((vector_size(kVecBytes)));
using U16h = uint16_t __attribute__((vector_size(kVecBytes / 2)));
using I8q = int8_t __attribute__((vector_size(kVecBytes / 4)));

template <class T>
struct Raw;
template <>
struct Raw<float> {
  using type = F32v;
  using mask = I32v;
};
template <>
struct Raw<double> {
  using type = F64v;
  using mask = I64v;
};

template <class T>
struct Vec {
  using R = typename Raw<T>::type;
  static constexpr int64_t n = kVecBytes / sizeof(T);
  R v;
  Vec() = default;
  Vec(R r) : v(r) {}
  // A T converts implicitly, so that x - c is written for a register x as for a
  // scalar.
  template <class C>
  requires std::is_arithmetic_v<C>
  explicit(!std::is_same_v<C, T>) Vec(C c) : v(R{} + static_cast<T>(c)) {}

  friend Vec operator+(Vec a, Vec b) { return a.v + b.v; }
  friend Vec operator-(Vec a, Vec b) { return a.v - b.v; }
  friend Vec operator*(Vec a, Vec b) { return a.v * b.v; }
  friend Vec operator/(Vec a, Vec b) { return a.v / b.v; }
  friend Vec operator-(Vec a) { return -a.v; }
};

// a * b + c, rounded once if the CPU can. The compiler does not fuse on its own
// (-ffp-contract=off), because that depends on the surrounding code: a row's
// last register would then be rounded differently from the others.
template <class T>
inline Vec<T> fma(Vec<T> a, Vec<T> b, Vec<T> c) {
#if defined(__FMA__) && defined(__AVX512F__)
  if constexpr (sizeof(T) == 4)
    return (F32v)_mm512_fmadd_ps((__m512)a.v, (__m512)b.v, (__m512)c.v);
  else
    return (F64v)_mm512_fmadd_pd((__m512d)a.v, (__m512d)b.v, (__m512d)c.v);
#elif defined(__FMA__)
  if constexpr (sizeof(T) == 4)
    return (F32v)_mm256_fmadd_ps((__m256)a.v, (__m256)b.v, (__m256)c.v);
  else
    return (F64v)_mm256_fmadd_pd((__m256d)a.v, (__m256d)b.v, (__m256d)c.v);
#elif defined(__x86_64__)
  return a.v * b.v + c.v;  // the CPU cannot fuse
#else
  for (int64_t i = 0; i < Vec<T>::n; ++i)
    c.v[i] = std::fma(a.v[i], b.v[i], c.v[i]);
  return c;
#endif
}
// Whether fma() rounds once.
#if defined(__x86_64__) && !defined(__FMA__)
inline constexpr bool kFuses = false;
#else
inline constexpr bool kFuses = true;
#endif
// a * b + c, rounded once. It is slow on a CPU that cannot fuse.
template <class T>
inline Vec<T> fused(Vec<T> a, Vec<T> b, Vec<T> c) {
  if constexpr (kFuses) return fma(a, b, c);
  for (int64_t i = 0; i < Vec<T>::n; ++i)
    c.v[i] = std::fma(a.v[i], b.v[i], c.v[i]);
  return c;
}
#define DT_COMPARE(op)                          \
  template <class T>                            \
  inline auto operator op(Vec<T> a, Vec<T> b) { \
    return a.v op b.v;                          \
  }
DT_COMPARE(<)
DT_COMPARE(>)
DT_COMPARE(<=)
DT_COMPARE(>=)
DT_COMPARE(==)
DT_COMPARE(!=)
#undef DT_COMPARE
// lanes() has `number` in each lane; lane_numbers() has 0, 1, 2, ...
template <class T>
inline typename Raw<T>::mask lanes(int64_t number) {
  using M = typename Raw<T>::mask;
  return M{} + static_cast<std::remove_reference_t<decltype(M{}[0])>>(number);
}
template <class T>
inline typename Raw<T>::mask lane_numbers() {
  typename Raw<T>::mask numbers;
  using I = std::remove_reference_t<decltype(numbers[0])>;
  for (int64_t i = 0; i < Vec<T>::n; ++i) numbers[i] = static_cast<I>(i);
  return numbers;
}
template <class T>
inline Vec<T> select(typename Raw<T>::mask m, Vec<T> a, Vec<T> b) {
  return m ? a.v : b.v;
}
// NaN if either is NaN. A constant is faster as the first operand.
template <class T>
inline Vec<T> max(Vec<T> a, Vec<T> b) {
  return (a.v > b.v) | (a.v != a.v) ? a.v : b.v;
}
template <class T>
inline Vec<T> min(Vec<T> a, Vec<T> b) {
  return (a.v < b.v) | (a.v != a.v) ? a.v : b.v;
}
#if defined(__AVX512F__)  // the instructions return b if either is NaN
inline Vec<float> max(Vec<float> a, Vec<float> b) {
  const F32v c = (F32v)_mm512_maskz_max_ps(0xffff, a.v, b.v);
  return a.v != a.v ? a.v : c;
}
inline Vec<float> min(Vec<float> a, Vec<float> b) {
  const F32v c = (F32v)_mm512_maskz_min_ps(0xffff, a.v, b.v);
  return a.v != a.v ? a.v : c;
}
#endif
template <class T>
inline Vec<T> abs(Vec<T> a) {
  using M = typename Raw<T>::mask;
  using I = std::remove_reference_t<decltype(std::declval<M>()[0])>;
  return (typename Raw<T>::type)((M)a.v & std::numeric_limits<I>::max());
}
// |a| with the sign of b.
template <class T>
inline Vec<T> copysign(Vec<T> a, Vec<T> b) {
  using M = typename Raw<T>::mask;
  using I = std::remove_reference_t<decltype(std::declval<M>()[0])>;
  constexpr I kBits = std::numeric_limits<I>::max();
  return (typename Raw<T>::type)(((M)a.v & kBits) | ((M)b.v & ~kBits));
}

#if defined(__F16C__) || defined(__AVX512F__)
inline constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
#endif

// --- Memory -----------------------------------------------------------------
using portable::compute_t;

template <class S>
inline Vec<S> load(const S* p) {
  Vec<S> r;
  std::memcpy(&r.v, p, sizeof(r.v));
  return r;
}
inline Vec<float> load(const bf16* p) {
  U16h h;
  std::memcpy(&h, p, sizeof(h));
#if defined(__AVX512F__)  // GCC converts the halves one after the other
  const U32v wide = (U32v)_mm512_maskz_cvtepu16_epi32(0xffff, (__m256i)h);
#else
  const U32v wide = __builtin_convertvector(h, U32v);
#endif
  return (F32v)(wide << 16);
}
inline Vec<float> load(const f16* p) {
#if defined(__AVX512F__)
  return (F32v)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
#elif defined(__F16C__)
  return (F32v)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p));
#else
  F32v r;
  for (int64_t i = 0; i < Vec<float>::n; ++i) r[i] = static_cast<float>(p[i]);
  return r;
#endif
}
inline Vec<float> load(const int8_t* p) {
  I8q q;
  std::memcpy(&q, p, sizeof(q));
#if defined(__AVX512F__)  // GCC converts the parts one after the other
  return (F32v)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32((__m128i)q));
#else
  return __builtin_convertvector(__builtin_convertvector(q, I32v), F32v);
#endif
}
template <class S>
inline void store(S* p, Vec<S> a) {
  std::memcpy(p, &a.v, sizeof(a.v));
}
inline void store(bf16* p, Vec<float> a) {
#if defined(__AVX512BF16__)  // the instruction treats denormals as 0
  if (_mm512_fpclass_ps_mask(a.v, 0x20) == 0) [[likely]] {
    const __m256bh h = _mm512_cvtneps_pbh(a.v);
    std::memcpy(static_cast<void*>(p), &h, sizeof(h));
    return;
  }
#endif
  const U32v u = (U32v)a.v;
  const U32v rounded = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
  const U32v quiet = (u >> 16) | 0x40u;
  const U16h h = __builtin_convertvector((a.v != a.v) ? quiet : rounded, U16h);
  std::memcpy(static_cast<void*>(p), &h, sizeof(h));
}
inline void store(f16* p, Vec<float> a) {
#if defined(__AVX512F__)
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph((__m512)a.v, kNearest));
#elif defined(__F16C__)
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph((__m256)a.v, kNearest));
#else
  for (int64_t i = 0; i < Vec<float>::n; ++i) p[i] = f16(a.v[i]);
#endif
}
// load_n() loads the first m <= Vec::n elements, with `rest` beyond; store_n()
// stores them. For the end of a row, which may not fill a register.
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
template <int64_t n>
inline auto first(int64_t m) {
  if constexpr (n == 8)
    return static_cast<__mmask8>((1u << m) - 1);
  else
    return static_cast<__mmask16>((1u << m) - 1);
}
inline Vec<float> load_n(const float* p, int64_t m, float rest = 0) {
  return (F32v)_mm512_mask_loadu_ps(_mm512_set1_ps(rest), first<16>(m), p);
}
inline Vec<double> load_n(const double* p, int64_t m, double rest = 0) {
  return (F64v)_mm512_mask_loadu_pd(_mm512_set1_pd(rest), first<8>(m), p);
}
inline Vec<float> load_n(const bf16* p, int64_t m, float rest = 0) {
  const U16h h = (U16h)_mm256_maskz_loadu_epi16(first<16>(m), p);
  return (F32v)_mm512_mask_blend_ps(
      first<16>(m), _mm512_set1_ps(rest),
      (__m512)(__builtin_convertvector(h, U32v) << 16));
}
inline Vec<float> load_n(const f16* p, int64_t m, float rest = 0) {
  return (F32v)_mm512_mask_cvtph_ps(_mm512_set1_ps(rest), first<16>(m),
                                    _mm256_maskz_loadu_epi16(first<16>(m), p));
}
inline Vec<float> load_n(const int8_t* p, int64_t m, float rest = 0) {
  const __m128i q = _mm_maskz_loadu_epi8(first<16>(m), p);
  return (F32v)_mm512_mask_cvtepi32_ps(_mm512_set1_ps(rest), first<16>(m),
                                       _mm512_cvtepi8_epi32(q));
}
inline void store_n(float* p, Vec<float> a, int64_t m) {
  _mm512_mask_storeu_ps(p, first<16>(m), (__m512)a.v);
}
inline void store_n(double* p, Vec<double> a, int64_t m) {
  _mm512_mask_storeu_pd(p, first<8>(m), (__m512d)a.v);
}
inline void store_n(bf16* p, Vec<float> a, int64_t m) {
  bf16 t[16];
  store(t, a);
  _mm256_mask_storeu_epi16(p, first<16>(m),
                           _mm256_loadu_si256((const __m256i*)t));
}
inline void store_n(f16* p, Vec<float> a, int64_t m) {
  _mm256_mask_storeu_epi16(p, first<16>(m),
                           _mm512_cvtps_ph((__m512)a.v, kNearest));
}
#else
template <class S>
inline Vec<compute_t<S>> load_n(const S* p, int64_t m, compute_t<S> rest = 0) {
  using V = Vec<compute_t<S>>;
  S t[V::n] = {};
  for (int64_t i = 0; i < m; ++i) t[i] = p[i];
  V r = load(t);
  for (int64_t i = m; i < V::n; ++i) r.v[i] = rest;
  return r;
}
template <class S>
inline void store_n(S* p, Vec<compute_t<S>> a, int64_t m) {
  S t[Vec<compute_t<S>>::n];
  store(t, a);
  for (int64_t i = 0; i < m; ++i) p[i] = t[i];
}
#endif

// --- Horizontal, in a fixed order -------------------------------------------
// Returns the elements from w on, followed by those before w.
template <class T>
inline Vec<T> rotated(Vec<T> a, int w) {
#ifdef __clang__  // it lacks __builtin_shuffle
  Vec<T> b;
  for (int i = 0; i < Vec<T>::n; ++i) b.v[i] = a.v[(i + w) % Vec<T>::n];
  return b;
#else
  return __builtin_shuffle(a.v, lane_numbers<T>() + lanes<T>(w));
#endif
}
template <class T, class Op>
inline T fold(Vec<T> a, Op op) {
#pragma GCC unroll 4
  for (int w = Vec<T>::n / 2; w > 0; w /= 2) a = op(a, rotated(a, w));
  return a.v[0];
}
template <class T>
inline T sum(Vec<T> a) {
  return fold(a, [](Vec<T> x, Vec<T> y) { return x + y; });
}
template <class T>
inline T max_of(T a, T b) {
  return a > b || a != a ? a : b;
}
template <class T>
inline T min_of(T a, T b) {
  return a < b || a != a ? a : b;
}

}  // namespace dtensor::simd
