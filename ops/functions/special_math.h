// SPDX-License-Identifier: Apache-2.0
// Special functions of scalars, for every argument. The relative error is below
// 1e-14, or 4e-13 in the tails of distributions and n * 1e-15 in the polygamma
// function of order n, except near a zero of lgamma, of the polygamma functions
// or of zeta. They compute in f64, because most are sums of many terms; the
// overloads at the end round to f32. "DLMF" is the NIST Digital Library of
// Mathematical Functions; "A&S" is Abramowitz and Stegun, Handbook of
// Mathematical Functions.
#pragma once
#include "dtensor/ops/functions/gamma_math.h"

namespace dtensor::fn {

// --- The normal distribution and the error function --------------------------
// exp(x^2) erfc(x). For large x, DLMF 7.12.1.
DT_LONG double erfcx(double x) {
  if (x < -27) return special::kInf;
  if (x < 8) {
    const double square = x * x, rest = std::fma(x, x, -square);
    return std::exp(square) * std::erfc(x) * (1 + rest);
  }
  const double z = 0.5 / (x * x);
  double term = 0.56418958354775629 / x, sum = term;  // 1 / sqrt(pi)
  for (int k = 1; std::fabs(term) > special::kLast * sum; ++k)
    sum += term *= -(2 * k - 1) * z;
  return sum;
}

// log(ndtr(x)), also where ndtr(x) is 0.
DT_LONG double log_ndtr(double x) {
  using special::kSqrtHalf;
  return x < -1 ? std::log(erfcx(-x * kSqrtHalf) / 2) - x * x / 2
                : std::log1p(-std::erfc(x * kSqrtHalf) / 2);
}

namespace special {
// ndtri(p) for p from 0 to 1/4: the approximation of A&S 26.2.23, and Newton's
// steps for log_ndtr(x) = log(p).
DT_LONG double low_quantile(double p) {
  const double log_p = std::log(p), t = std::sqrt(-2 * log_p);
  double x = (2.515517 + t * (0.802853 + t * 0.010328)) /
                 (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))) -
             t;
  for (int i = 0; i < 3; ++i)
    x -= (log_ndtr(x) - log_p) * erfcx(-x * kSqrtHalf) *
         1.2533141373155003;  // sqrt(pi / 2)
  return p == 0 ? -kInf : x;
}

// erfinv(y) for |y| <= 1/2: four terms of its series at 0 (DLMF 7.17.2), and
// Newton's steps.
DT_LONG double middle_erfinv(double y) {
  const double t = 0.88622692545275801 * y, z = t * t;  // sqrt(pi) / 2
  double x = t * (1 + z * (1.0 / 3 + z * (7.0 / 30 + z * (127.0 / 630))));
  for (int i = 0; i < 3; ++i)
    x -= (std::erf(x) - y) * 0.88622692545275801 * std::exp(x * x);
  return x;
}
}  // namespace special

// The inverse of ndtr(). NaN outside [0, 1].
DT_HD inline double ndtri(double p) {
  using namespace special;
  if (!(p >= 0 && p <= 1)) return kNaN;
  if (p < 0.25) return low_quantile(p);
  if (p > 0.75) return -low_quantile(1 - p);
  return middle_erfinv(2 * p - 1) / kSqrtHalf;
}

// The inverse of erf(). NaN outside [-1, 1].
DT_HD inline double erfinv(double y) {
  using namespace special;
  const double size = std::fabs(y);
  if (!(size <= 1)) return kNaN;
  if (size <= 0.5) return middle_erfinv(y);
  return std::copysign(low_quantile((1 - size) / 2) * kSqrtHalf, y);
}

// --- Modified Bessel functions -----------------------------------------------
// exp(-|x|) I_n(x) for n = 0, 1, 2, ...: the power series of DLMF 10.25.2, and
// for large x, 10.40.1.
DT_LONG double bessel_ie(double x, int n) {
  const double size = std::fabs(x);
  double term, sum;
  if (size <= 25) {
    const double half = size / 2, z = half * half;
    term = std::exp(-size);
    for (int k = 1; k <= n; ++k) term *= half / k;
    sum = term;
    for (int k = 1; term > special::kLast * sum; ++k)
      sum += term *= z / (k * (k + n));
  } else {
    term = sum = 1 / std::sqrt(2 * special::kPi * size);
    for (int k = 1; std::fabs(term) > special::kLast * sum; ++k)
      sum += term *= ((2 * k - 1) * (2 * k - 1) - 4 * n * n) / (8 * k * size);
  }
  return n % 2 ? std::copysign(sum, x) : sum;
}
// I_n(x) for n = 0, 1, 2, ...
DT_LONG double bessel_i(double x, int n) {
  const double y = bessel_ie(x, n), half = std::exp(std::fabs(x) / 2);
  return std::fabs(x) > 720 ? std::copysign(special::kInf, y) : half * y * half;
}

// --- The parts of a number ---------------------------------------------------
// x = frexp_mantissa(x) * 2^frexp_exponent(x), where the mantissa is in
// [0.5, 1) or (-1, -0.5]. For 0, infinities and NaN, the mantissa is x, and the
// exponent is 0.
DT_HD inline double frexp_exponent(double x) {
  int exponent = 0;
  if (x - x == 0) (void)std::frexp(x, &exponent);
  return exponent;
}
DT_HD inline double frexp_mantissa(double x) {
  int exponent = 0;
  return x - x == 0 ? std::frexp(x, &exponent) : x;
}
#undef DT_LONG

// --- f32 ---------------------------------------------------------------------
#define DT_IN_F64(name)                         \
  DT_HD inline float name(float x) {            \
    return static_cast<float>(name(double{x})); \
  }
#define DT_IN_F64_OF_2(name, Second, Wide)               \
  DT_HD inline float name(float x, Second y) {           \
    return static_cast<float>(name(double{x}, Wide{y})); \
  }
DT_IN_F64(lgamma)
DT_IN_F64(digamma)
DT_IN_F64(erfcx)
DT_IN_F64(log_ndtr)
DT_IN_F64(ndtri)
DT_IN_F64(erfinv)
DT_IN_F64(frexp_exponent)
DT_IN_F64(frexp_mantissa)
DT_IN_F64_OF_2(polygamma, double, double)
DT_IN_F64_OF_2(bessel_i, int, int)
DT_IN_F64_OF_2(bessel_ie, int, int)
DT_IN_F64_OF_2(zeta, float, double)
DT_IN_F64_OF_2(igamma, float, double)
DT_IN_F64_OF_2(igammac, float, double)
DT_IN_F64_OF_2(gamma_density, float, double)
#undef DT_IN_F64
#undef DT_IN_F64_OF_2

}  // namespace dtensor::fn
