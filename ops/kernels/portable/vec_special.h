// SPDX-License-Identifier: Apache-2.0
// The special functions of a register of floats. Most of them go element by
// element, because they have loops of different lengths.
#pragma once
#include <cstdint>
#include <cstring>

#include "dtensor/ops/functions/special_math.h"
#include "dtensor/ops/kernels/portable/vec.h"
#include "dtensor/ops/kernels/portable/vec_math.h"

namespace dtensor::simd {

#define DT_EACH(name)                                                  \
  template <class T>                                                   \
  inline Vec<T> name(Vec<T> a) {                                       \
    for (int64_t i = 0; i < Vec<T>::n; ++i) a.v[i] = fn::name(a.v[i]); \
    return a;                                                          \
  }
DT_EACH(lgamma)
DT_EACH(digamma)
DT_EACH(erfcx)
DT_EACH(log_ndtr)
DT_EACH(ndtri)
DT_EACH(erfinv)
DT_EACH(frexp_mantissa)
DT_EACH(frexp_exponent)
#undef DT_EACH
#define DT_EACH(name, Order)                                              \
  template <class T>                                                      \
  inline Vec<T> name(Vec<T> a, Order n) {                                 \
    for (int64_t i = 0; i < Vec<T>::n; ++i) a.v[i] = fn::name(a.v[i], n); \
    return a;                                                             \
  }
DT_EACH(polygamma, double)
#undef DT_EACH
#define DT_EACH(name)                                                          \
  template <class T>                                                           \
  inline Vec<T> name(Vec<T> a, Vec<T> b) {                                     \
    for (int64_t i = 0; i < Vec<T>::n; ++i) a.v[i] = fn::name(a.v[i], b.v[i]); \
    return a;                                                                  \
  }
DT_EACH(igamma)
DT_EACH(igammac)
DT_EACH(gamma_density)
DT_EACH(zeta)
#undef DT_EACH

// --- Of registers ------------------------------------------------------------
// Floats are computed in f64 and rounded once. So their bits depend neither on
// the width of a register nor on whether the CPU fuses multiplications.
template <class F>
inline Vec<float> in_f64(Vec<float> a, F f) {
  using Half = float __attribute__((vector_size(kVecBytes / 2)));
  Half halves[2];
  std::memcpy(halves, &a.v, sizeof(a.v));
  for (Half& h : halves)
    h = __builtin_convertvector(
        f(Vec<double>(__builtin_convertvector(h, F64v))).v, Half);
  std::memcpy(&a.v, halves, sizeof(a.v));
  return a;
}

inline bool any(I64v m) {
  int64_t all = 0;
  for (int64_t i = 0; i < Vec<double>::n; ++i) all |= m[i];
  return all != 0;
}

// c[0] + c[1] x + c[2] x^2 + ...
template <int n>
inline Vec<double> polynomial(Vec<double> x, const double (&c)[n]) {
  Vec<double> y(c[n - 1]);
#pragma GCC unroll 16
  for (int i = n - 2; i >= 0; --i) y = fma(y, x, Vec<double>(c[i]));
  return y;
}

// In this and the next function, the polynomials interpolate at Chebyshev's
// points. Stirling's formula from a = 4 on, with its series in 1 / a^2 (within
// 1e-15); below 4, four steps of a gamma(a) = gamma(a + 1); and below 0, the
// reflection of DLMF 5.5.3.
inline Vec<float> lgamma(Vec<float> given) {
  using V = Vec<double>;
  constexpr double kSeries[] = {0.08333333333333305,   -0.002777777777181388,
                                0.0007936505874366478, -0.0005952106416391851,
                                0.0008399241063903852, -0.0018493812825542046,
                                0.00490682204421289,   -0.00931334808113529};
  constexpr double kSine[] = {// of sin(pi d) / d in d^2, for |d| <= 1/2
                              3.1415926535897927,    -5.167712780049786,
                              2.550164039861884,     -0.5992645288256148,
                              0.08214587882077493,   -0.007370364352718201,
                              0.0004659870919775173, -2.1133714397960184e-05};
  constexpr double kHalfLog2Pi = 0.91893853320467274;
  return in_f64(given, [&](V x) {
    const V one(1.0), a = abs(x);
    const auto low = a < V(4.0), negative = x < V(0.0);
    const V t = select<double>(low, a + 4.0, a), inverse = one / t;
    const V stirling = fma(t - 0.5, log(t), kHalfLog2Pi - t) +
                       inverse * polynomial(inverse * inverse, kSeries);
    V q = select<double>(low, a * (a + 1.0) * ((a + 2.0) * (a + 3.0)), one);
    if (any(negative)) {
      const V d = a - round(a), sine = abs(d) * polynomial(d * d, kSine);
      q = select<double>(negative, q * fn::special::kPi / (a * sine), q);
    }
    const V rest = stirling - log(q);
    const V y = select<double>(negative, -rest, rest);
    return select<double>(
        a == V(fn::special::kInf), a,
        select<double>((x == one) | (x == V(2.0)), V(0.0), y));
  });
}

// x times a polynomial in w = -log(1 - x^2), or from w = 5 on, in its root,
// as in Giles, "Approximating the erfinv function", GPU Computing Gems, 2011.
// Within 4e-9.
inline Vec<float> erfinv(Vec<float> given) {
  using V = Vec<double>;
  constexpr double kMiddle[] = {
      1.5014093511307296,      0.24664027679468034,    -0.004177318038629195,
      -0.0012527081133215396,  0.00021825107431056642, -4.9958551035442985e-06,
      -3.417404481378257e-06,  4.786352615420698e-07,  1.378055169781747e-08,
      -1.0852875942166488e-08, 8.200569732533019e-10,  1.2294079820302473e-10,
      -2.0530252936694423e-11};
  constexpr double kTail[] = {
      2.832976801347659,      1.0016752549658097,      0.009445321264357702,
      -0.007643107851779183,  0.005687507797247112,    -0.003565339276173825,
      0.001475501015917165,   -0.00012344291789395537, -0.000277219668671627,
      0.00016282711665726655, -3.0304744481490978e-05};
  return in_f64(given, [&](V x) {
    const V one(1.0), end(fn::special::kInf), size = abs(x);
    const auto inside = size < one;  // log() is slow for NaN
    const V w = -log(select<double>(inside, (one - x) * (one + x), one));
    const auto tail = w > V(5.0);
    V y = polynomial(w - 2.5, kMiddle);
    if (any(tail))
      y = select<double>(tail, polynomial(sqrt(w) - 3.0, kTail), y);
    return x * select<double>(inside, y,
                              select<double>(size == one, end, end - end));
  });
}

// fn::bessel_ie(), until the sum of the last element ends. The terms that the
// others still add are too small to change them.
inline Vec<double> bessel_ie(Vec<double> x, int n) {
  using V = Vec<double>;
  const V size = abs(x);
  const auto large = size > V(25.0);
  const V half = select<double>(large, V(0.0), size / 2.0), z = half * half;
  V term = exp(-select<double>(large, V(0.0), size));
  for (int k = 1; k <= n; ++k) term = term * half / static_cast<double>(k);
  V sum = term;
  for (int k = 1; any(term > sum * fn::special::kLast); ++k) {
    term = term * z * (1.0 / (k * (k + n)));
    sum = sum + term;
  }
  if (any(large)) {
    const V from = select<double>(large, size, V(fn::special::kInf));
    V last = V(1.0) / sqrt(from * (2 * fn::special::kPi)), all = last;
    for (int k = 1; any(abs(last) > all * fn::special::kLast); ++k) {
      last = last * double((2 * k - 1) * (2 * k - 1) - 4 * n * n) /
             (from * static_cast<double>(8 * k));
      all = all + last;
    }
    sum = select<double>(large, all, sum);
  }
  return n % 2 ? copysign(sum, x) : sum;
}
inline Vec<double> bessel_i(Vec<double> x, int n) {
  using V = Vec<double>;
  const V size = abs(x), y = bessel_ie(x, n), half = exp(size / 2.0);
  return select<double>(size > V(720.0), copysign(V(fn::special::kInf), y),
                        half * y * half);
}
inline Vec<float> bessel_ie(Vec<float> a, int n) {
  return in_f64(a, [n](Vec<double> x) { return bessel_ie(x, n); });
}
inline Vec<float> bessel_i(Vec<float> a, int n) {
  return in_f64(a, [n](Vec<double> x) { return bessel_i(x, n); });
}

}  // namespace dtensor::simd
