// SPDX-License-Identifier: Apache-2.0
// Special functions, by their names in torch and torch.special. They compute in
// f64, and round to the type of x.
#pragma once
#include "dtensor/ops/functions/function.h"

namespace dtensor::fn {

DT_ELEMENTARY(ErfInv, erfinv, Domain domain{-1, 1})  // NaN outside [-1, 1]
// The inverse of ndtr(). NaN outside [0, 1].
DT_ELEMENTARY(Ndtri, ndtri, Domain domain{0.05, 0.95})
DT_ELEMENTARY(LogNdtr, log_ndtr, const char* notes = "up 0")
DT_ELEMENTARY(Erfcx, erfcx, const char* notes = "down 0")  // exp(x^2) erfc(x)
DT_ELEMENTARY(Lgamma, lgamma, Domain domain{0.25, 2.75})   // log(|gamma(x)|)
DT_ELEMENTARY(Digamma, digamma, Domain domain{0.25, 2.75})
// The derivative p[0] of digamma(). In torch, the order comes first: see
// polygamma() in ops/special.h.
struct PolygammaScalar {
  static constexpr const char* name = "polygamma_scalar";
  static constexpr Param params[] = {{"n", NAN, 2}};
  static constexpr Domain domain{0.5, 2.75};
  template <class V>
  DT_HD static V value(const V& x, const double* p) {
    return polygamma(x, p[0]);
  }
};

// The modified Bessel functions of the first kind, of order 0 and 1; those with
// an e are times exp(-|x|).
#define DT_BESSEL(F, text, function, order)           \
  struct F {                                          \
    static constexpr const char* name = text;         \
    template <class V>                                \
    DT_HD static V value(const V& x, const double*) { \
      return function(x, order);                      \
    }                                                 \
  };
DT_BESSEL(I0, "i0", bessel_i, 0)
DT_BESSEL(I0e, "i0e", bessel_ie, 0)
DT_BESSEL(I1, "i1", bessel_i, 1)
DT_BESSEL(I1e, "i1e", bessel_ie, 1)
#undef DT_BESSEL

// x = mantissa * 2^exponent, where |mantissa| is in [0.5, 1), or x is 0,
// infinite or NaN, and the exponent is 0. See frexp() in ops/special.h.
DT_ELEMENTARY(FrexpMantissa, frexp_mantissa, Domain domain{1, 2})
DT_ELEMENTARY(FrexpExponent, frexp_exponent, Domain domain{1, 2})

// The regularized incomplete gamma functions P(a, x) and Q(a, x): the parts of
// the integral of t^(a - 1) exp(-t) below and above x. NaN if a or x is
// negative. No gradient by a.
#define DT_INCOMPLETE_GAMMA(F, function)                           \
  struct F {                                                       \
    static constexpr const char* name = #function;                 \
    static constexpr Domain domain{0.25, 2.75}, domain_b{0.25, 4}; \
    static constexpr bool slope_a = false;                         \
    template <class V>                                             \
    DT_HD static V value(const V& a, const V& b, const double*) {  \
      return function(a, b);                                       \
    }                                                              \
  };
DT_INCOMPLETE_GAMMA(Igamma, igamma)
DT_INCOMPLETE_GAMMA(Igammac, igammac)
#undef DT_INCOMPLETE_GAMMA
// Hurwitz's zeta function: the sum of (b + k)^-a over k = 0, 1, ... inf at
// a = 1; NaN for a < 1, and for b < 0 unless a is whole. No gradient by a.
struct Zeta {
  static constexpr const char* name = "zeta";
  static constexpr Domain domain{1.5, 4}, domain_b{0.5, 3};
  static constexpr bool slope_a = false;
  template <class V>
  DT_HD static V value(const V& a, const V& b, const double*) {
    return zeta(a, b);
  }
};

#define DT_SPECIAL_UNARY(DT_FUNCTION, DT_FUNCTION_P) \
  DT_FUNCTION(ErfInv, erfinv)                        \
  DT_FUNCTION(Ndtri, ndtri)                          \
  DT_FUNCTION(LogNdtr, log_ndtr)                     \
  DT_FUNCTION(Erfcx, erfcx)                          \
  DT_FUNCTION(Lgamma, lgamma)                        \
  DT_FUNCTION(Digamma, digamma)                      \
  DT_FUNCTION_P(PolygammaScalar, polygamma_scalar)   \
  DT_FUNCTION(I0, i0)                                \
  DT_FUNCTION(I0e, i0e)                              \
  DT_FUNCTION(I1, i1)                                \
  DT_FUNCTION(I1e, i1e)                              \
  DT_FUNCTION(FrexpMantissa, frexp_mantissa)         \
  DT_FUNCTION(FrexpExponent, frexp_exponent)
#define DT_SPECIAL_BINARY(DT_FUNCTION, DT_FUNCTION_P) \
  DT_FUNCTION(Igamma, igamma)                         \
  DT_FUNCTION(Igammac, igammac)                       \
  DT_FUNCTION(Zeta, zeta)

}  // namespace dtensor::fn
