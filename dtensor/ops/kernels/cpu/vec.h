// A register full of floats or doubles, with the operators and functions that
// fn::UnaryFunctions and the row kernels are written in. Private to
// ops/kernels.
//
// GCC's vector extensions give the arithmetic on any target; transcendental
// functions come from glibc's libmvec (at most 4 ulp, exact at the special
// values), and element by element from <cmath> where there is none. exp of
// floats is our own: it is the one that matters most, and libmvec's is slow on
// the -inf of a masked softmax.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "dtensor/placement/dtype.h"

namespace dtensor::kernels::cpu {

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
  explicit Vec(double c) : v(R{} + static_cast<T>(c)) {}
};

template <class T>
inline Vec<T> operator+(Vec<T> a, Vec<T> b) {
  return a.v + b.v;
}
template <class T>
inline Vec<T> operator-(Vec<T> a, Vec<T> b) {
  return a.v - b.v;
}
template <class T>
inline Vec<T> operator*(Vec<T> a, Vec<T> b) {
  return a.v * b.v;
}
template <class T>
inline Vec<T> operator/(Vec<T> a, Vec<T> b) {
  return a.v / b.v;
}
template <class T>
inline Vec<T> operator-(Vec<T> a) {
  return -a.v;
}
template <class T>
inline auto operator<(Vec<T> a, Vec<T> b) {
  return a.v < b.v;
}
template <class T>
inline auto operator>(Vec<T> a, Vec<T> b) {
  return a.v > b.v;
}
template <class T>
inline auto operator<=(Vec<T> a, Vec<T> b) {
  return a.v <= b.v;
}
template <class T>
inline Vec<T> select(typename Raw<T>::mask m, Vec<T> a, Vec<T> b) {
  return m ? a.v : b.v;
}
// NaN when either is one.
template <class T>
inline Vec<T> max(Vec<T> a, Vec<T> b) {
  return (a.v > b.v) | (a.v != a.v) ? a.v : b.v;
}
template <class T>
inline Vec<T> min(Vec<T> a, Vec<T> b) {
  return (a.v < b.v) | (a.v != a.v) ? a.v : b.v;
}
template <class T>
inline Vec<T> abs(Vec<T> a) {
  using M = typename Raw<T>::mask;
  using I = std::remove_reference_t<decltype(std::declval<M>()[0])>;
  return (typename Raw<T>::type)((M)a.v & std::numeric_limits<I>::max());
}

// --- Memory -----------------------------------------------------------------
// The type that storage S computes in.
template <class S>
struct Compute {
  using type = S;
};
template <>
struct Compute<bf16> {
  using type = float;
};
template <class S>
using compute_t = typename Compute<S>::type;

template <class S>
inline Vec<S> load(const S* p) {
  Vec<S> r;
  std::memcpy(&r.v, p, sizeof(r.v));
  return r;
}
inline Vec<float> load(const bf16* p) {
  U16h h;
  std::memcpy(&h, p, sizeof(h));
  return (F32v)(__builtin_convertvector(h, U32v) << 16);
}
template <class S>
inline void store(S* p, Vec<S> a) {
  std::memcpy(p, &a.v, sizeof(a.v));
}
inline void store(bf16* p, Vec<float> a) {
  const U32v u = (U32v)a.v;
  const U32v rounded = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
  const U32v quiet = (u >> 16) | 0x40u;
  const U16h h = __builtin_convertvector((a.v != a.v) ? quiet : rounded, U16h);
  std::memcpy(static_cast<void*>(p), &h, sizeof(h));
}
// The first m < Vec::n elements, the rest being `rest`; and their stores. Every
// row that is no multiple of a register has one.
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
template <class T, class Op>
inline T fold(Vec<T> a, Op op) {
  using M = typename Raw<T>::mask;
  M index;
  for (int64_t i = 0; i < Vec<T>::n; ++i)
    index[i] = static_cast<std::remove_reference_t<decltype(index[0])>>(i);
#pragma GCC unroll 4
  for (int w = Vec<T>::n / 2; w > 0; w /= 2)
    a = op(a, Vec<T>(__builtin_shuffle(a.v, index + w)));
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

// --- Functions --------------------------------------------------------------
// exp(x) = 2^n exp(r), |r| <= ln(2) / 2, after Cephes; within 2 ulp.
inline F32v exp_reduced(F32v x, I32v* n) {
  const float magic = 12582912.0f;  // 1.5 * 2^23: rounds to an integer
  const F32v z = x * 1.44269504088896341f + magic;
  *n = (I32v)z - 0x4b400000;
  const F32v k = z - magic;
  const F32v r = (x - k * 0.693359375f) - k * -2.12194440e-4f;
  F32v p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return (p * r) * r + r + 1.0f;
}
inline Vec<float> exp(Vec<float> x) {
  F32v c = x.v;
  c = c > 89.0f ? F32v{} + 89.0f : c;
  c = c < -104.0f ? F32v{} - 104.0f : c;
  I32v n;
  const F32v p = exp_reduced(c, &n);
  // In two factors, for results near the ends of the range.
  const I32v n1 = n >> 1;
  const I32v n2 = n - n1;
  return p * (F32v)((n1 + 127) << 23) * (F32v)((n2 + 127) << 23);
}
// For softmax: x <= 0 (or NaN, or inf - inf), and denormal results become 0,
// which are slow to compute and no loss beside the row's 1.
inline Vec<float> exp_softmax(Vec<float> x) {
  const F32v low = F32v{} - 87.0f;
  const F32v c = x.v < low ? low : x.v;
  I32v n;
  const F32v p = exp_reduced(c, &n);
  const F32v e = p * (F32v)((n + 127) << 23);
  return x.v < low ? F32v{} : e;
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
#define DT_MVEC32(name) DT_MVEC(16v, name)
#define DT_MVEC64(name) DT_MVEC(8v, name)
#define DT_POW32 DT_MVEC(16vv, powf)
#define DT_POW64 DT_MVEC(8vv, pow)
#elif defined(__AVX__)
#define DT_MVEC32(name) DT_MVEC(8v, name)
#define DT_MVEC64(name) DT_MVEC(4v, name)
#define DT_POW32 DT_MVEC(8vv, powf)
#define DT_POW64 DT_MVEC(4vv, pow)
#else
#define DT_MVEC32(name) DT_MVEC(4v, name)
#define DT_MVEC64(name) DT_MVEC(2v, name)
#define DT_POW32 DT_MVEC(4vv, powf)
#define DT_POW64 DT_MVEC(2vv, pow)
#endif
// Declares libmvec's function for this register size and wraps it.
#define DT_MATH(name)                                                      \
  extern "C" F32v DT_MVEC32(name##f)(F32v);                                \
  extern "C" F64v DT_MVEC64(name)(F64v);                                   \
  inline Vec<float> name(Vec<float> a) { return DT_MVEC32(name##f)(a.v); } \
  inline Vec<double> name(Vec<double> a) { return DT_MVEC64(name)(a.v); }
extern "C" F64v DT_MVEC64(exp)(F64v);
inline Vec<double> exp(Vec<double> a) { return DT_MVEC64(exp)(a.v); }
extern "C" F32v DT_POW32(F32v, F32v);
extern "C" F64v DT_POW64(F64v, F64v);
inline Vec<float> pow_any(Vec<float> a, Vec<float> b) {
  return DT_POW32(a.v, b.v);
}
inline Vec<double> pow_any(Vec<double> a, Vec<double> b) {
  return DT_POW64(a.v, b.v);
}
#else
#define DT_MATH(name) DT_LANES(float, name) DT_LANES(double, name)
DT_LANES(double, exp)
template <class T>
inline Vec<T> pow_any(Vec<T> a, Vec<T> b) {
  Vec<T> r;
  for (int64_t i = 0; i < Vec<T>::n; ++i) r.v[i] = std::pow(a.v[i], b.v[i]);
  return r;
}
#endif
DT_MATH(log)
DT_MATH(log1p)
DT_MATH(expm1)
DT_MATH(sin)
DT_MATH(cos)
DT_MATH(tanh)
DT_MATH(erf)
#undef DT_MATH

inline Vec<double> exp_softmax(Vec<double> x) {
  // Keeps the slow paths of masked elements away.
  const F64v low = F64v{} - 708.0;
  const Vec<double> e = exp(Vec<double>(x.v < low ? low : x.v));
  return x.v < low ? F64v{} : e.v;
}

// The masked forms, since GCC warns of the others' undefined operand.
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
                         : std::ceil(a.v[i]);
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
inline Vec<T> pow(Vec<T> a, double p) {
  using V = Vec<T>;
  if (p == 0) return V(1);
  if (p == 1) return a;
  if (p == 2) return a * a;
  if (p == 3) return a * a * a;
  if (p == 0.5) return sqrt(a);
  if (p == -1) return V(1) / a;
  if (p == -2) return V(1) / (a * a);
  return pow_any(a, V(p));
}

}  // namespace dtensor::kernels::cpu
