// SPDX-License-Identifier: Apache-2.0
// Forward-mode derivatives: a value with its derivative. The code of a function
// runs on it as on a plain value. Dual<Dual<V>> carries second derivatives.
#pragma once
#include "dtensor/ops/functions/math.h"
#include "dtensor/ops/functions/special_math.h"

namespace dtensor::fn {

template <class V>
struct Dual {
  V v, d;
  DT_HD Dual(const V& value, const V& derivative) : v(value), d(derivative) {}
  DT_HD explicit Dual(double c) : v(c), d(0.0) {}
};

template <class V>
DT_HD inline Dual<V> operator-(const Dual<V>& a) {
  return {-a.v, -a.d};
}
template <class V>
DT_HD inline Dual<V> operator+(const Dual<V>& a, const Dual<V>& b) {
  return {a.v + b.v, a.d + b.d};
}
template <class V>
DT_HD inline Dual<V> operator-(const Dual<V>& a, const Dual<V>& b) {
  return {a.v - b.v, a.d - b.d};
}
template <class V>
DT_HD inline Dual<V> operator*(const Dual<V>& a, const Dual<V>& b) {
  return {a.v * b.v, a.d * b.v + a.v * b.d};
}
template <class V>
DT_HD inline Dual<V> operator/(const Dual<V>& a, const Dual<V>& b) {
  const V q = a.v / b.v;
  return {q, (a.d - q * b.d) / b.v};
}
#define DT_COMPARE(op)                                                \
  template <class V>                                                  \
  DT_HD inline auto operator op(const Dual<V>& a, const Dual<V>& b) { \
    return a.v op b.v;                                                \
  }
DT_COMPARE(<)
DT_COMPARE(>)
DT_COMPARE(<=)
DT_COMPARE(>=)
DT_COMPARE(==)
DT_COMPARE(!=)
#undef DT_COMPARE
template <class M, class V>
DT_HD inline Dual<V> select(const M& c, const Dual<V>& a, const Dual<V>& b) {
  return {select(c, a.v, b.v), select(c, a.d, b.d)};
}

// Whether d is 0, as for a constant. scaled() then gives 0 even if the slope is
// infinite.
template <class V>
DT_HD inline auto is_zero(const V& d) {
  return d == V(0);
}
template <class V>
DT_HD inline auto is_zero(const Dual<V>& d) {
  return is_zero(d.v) & is_zero(d.d);
}
template <class V>
DT_HD inline V scaled(const V& d, const V& slope) {
  return select(is_zero(d), V(0), d * slope);
}

// --- One argument: the name, and the derivative at v, where y = name(v) -----
#define DT_DUAL(name, slope)                    \
  template <class V>                            \
  DT_HD inline Dual<V> name(const Dual<V>& a) { \
    const V& v = a.v;                           \
    const V y = name(v);                        \
    (void)v, (void)y;                           \
    return {y, a.d * (slope)};                  \
  }
DT_DUAL(abs, sign(v))  // 0 at 0
DT_DUAL(exp, y)
DT_DUAL(exp2, y* V(0.69314718055994531))
DT_DUAL(expm1, exp(v))
DT_DUAL(sqrt, V(0.5) / y)
DT_DUAL(sin, cos(v))
DT_DUAL(cos, -sin(v))
DT_DUAL(tan, V(1) + y * y)
DT_DUAL(asin, V(1) / sqrt(V(1) - v * v))
DT_DUAL(acos, V(-1) / sqrt(V(1) - v * v))
DT_DUAL(atan, V(1) / (V(1) + v * v))
DT_DUAL(sinh, cosh(v))
DT_DUAL(cosh, sinh(v))
DT_DUAL(tanh, V(1) - y * y)
DT_DUAL(asinh, V(1) / sqrt(v * v + V(1)))
DT_DUAL(acosh, V(1) / sqrt(v * v - V(1)))
DT_DUAL(atanh, V(1) / (V(1) - v * v))
DT_DUAL(erf, V(1.1283791670955126) * exp(-(v * v)))  // 2 / sqrt(pi)
DT_DUAL(erfc, V(-1.1283791670955126) * exp(-(v * v)))
DT_DUAL(erfcx, V(2) * v * y - V(1.1283791670955126))
DT_DUAL(erfinv, V(0.88622692545275801) * exp(y * y))         // sqrt(pi) / 2
DT_DUAL(ndtri, V(2.5066282746310005) * exp(V(0.5) * y * y))  // sqrt(2 pi)
// sqrt(2 / pi), and 1 / sqrt(2)
DT_DUAL(log_ndtr, V(0.79788456080286536) / erfcx(v * V(-0.70710678118654752)))
DT_DUAL(lgamma, digamma(v))
DT_DUAL(digamma, polygamma(v, 1.0))
DT_DUAL(frexp_mantissa, V(1) / exp2(frexp_exponent(v)))
// These have rules of their own: where exp(-v) overflows, the derivative of
// sigmoid's code would be NaN.
DT_DUAL(sigmoid, y*(V(1) - y))
DT_DUAL(softplus, sigmoid(v))
#undef DT_DUAL
// Written as quotients, because the factor 1 / v would be rounded.
#define DT_DUAL(name, divisor)                  \
  template <class V>                            \
  DT_HD inline Dual<V> name(const Dual<V>& a) { \
    return {name(a.v), a.d / (divisor)};        \
  }
DT_DUAL(log, a.v)
DT_DUAL(log2, a.v* V(0.69314718055994531))
DT_DUAL(log10, a.v* V(2.3025850929940457))
DT_DUAL(log1p, V(1) + a.v)
#undef DT_DUAL
// Piecewise constant functions, whose derivative is 0.
#define DT_DUAL(name)                           \
  template <class V>                            \
  DT_HD inline Dual<V> name(const Dual<V>& a) { \
    return {name(a.v), V(0)};                   \
  }
DT_DUAL(floor)
DT_DUAL(ceil)
DT_DUAL(round)
DT_DUAL(trunc)
DT_DUAL(frexp_exponent)
#undef DT_DUAL

// The derivative of x^0 is 0 for every x, including 0.
template <class V>
DT_HD inline Dual<V> pow(const Dual<V>& a, double p) {
  if (p == 0) return Dual<V>(1.0);
  return {pow(a.v, p), a.d * (V(p) * pow(a.v, p - 1))};
}

template <class V>
DT_HD inline Dual<V> polygamma(const Dual<V>& a, double n) {
  return {polygamma(a.v, n), a.d * polygamma(a.v, n + 1)};
}
// DLMF 10.29.1, where I_{-1} = I_1.
template <class V>
DT_HD inline Dual<V> bessel_i(const Dual<V>& a, int n) {
  const V low = bessel_i(a.v, n > 0 ? n - 1 : 1), high = bessel_i(a.v, n + 1);
  return {bessel_i(a.v, n), a.d * (V(0.5) * (low + high))};
}
template <class V>
DT_HD inline Dual<V> bessel_ie(const Dual<V>& a, int n) {
  const V y = bessel_ie(a.v, n), low = bessel_ie(a.v, n > 0 ? n - 1 : 1),
          high = bessel_ie(a.v, n + 1);
  return {y, a.d * (V(0.5) * (low + high) - sign(a.v) * y)};
}

// --- Two arguments ----------------------------------------------------------
// a / b. Its slope by a is 1 / b even if the quotient is infinite.
template <class V>
DT_HD inline Dual<V> quotient(const Dual<V>& a, const Dual<V>& b) {
  const V q = quotient(a.v, b.v);
  return {q, quotient(a.d - scaled(b.d, q), b.v)};
}
// As in PyTorch, the slope by a is 0 if b = 0, and the slope by b is 0 if a = 0
// and b >= 0.
template <class V>
DT_HD inline Dual<V> pow(const Dual<V>& a, const Dual<V>& b) {
  const V y = pow(a.v, b.v);
  const V da = select(b.v == V(0), V(0), b.v * pow(a.v, b.v - V(1)));
  const V db = select((a.v == V(0)) & (b.v >= V(0)), V(0), y * log(a.v));
  return {y, scaled(a.d, da) + scaled(b.d, db)};
}
// Equal operands share the gradient evenly. If y is NaN, both get all of it.
template <class V>
DT_HD inline Dual<V> extremum(const Dual<V>& a, const Dual<V>& b, const V& y) {
  return {y, select(a.v == b.v, V(0.5) * (a.d + b.d),
                    select((a.v != a.v) | (b.v != b.v), a.d + b.d,
                           select(a.v == y, a.d, b.d)))};
}
template <class V>
DT_HD inline Dual<V> max(const Dual<V>& a, const Dual<V>& b) {
  return extremum(a, b, max(a.v, b.v));
}
template <class V>
DT_HD inline Dual<V> min(const Dual<V>& a, const Dual<V>& b) {
  return extremum(a, b, min(a.v, b.v));
}
template <class V>
DT_HD inline Dual<V> hypot(const Dual<V>& a, const Dual<V>& b) {
  const V y = hypot(a.v, b.v);
  return {y, scaled(a.d, a.v / y) + scaled(b.d, b.v / y)};
}
template <class V>
DT_HD inline Dual<V> atan2(const Dual<V>& a, const Dual<V>& b) {
  const V square = a.v * a.v + b.v * b.v;
  return {atan2(a.v, b.v),
          scaled(a.d, b.v / square) - scaled(b.d, a.v / square)};
}
template <class V>
DT_HD inline Dual<V> fmod(const Dual<V>& a, const Dual<V>& b) {
  return {fmod(a.v, b.v), a.d - scaled(b.d, trunc(a.v / b.v))};
}
template <class V>
DT_HD inline Dual<V> copysign(const Dual<V>& a, const Dual<V>& b) {
  return {copysign(a.v, b.v), a.d * (sign(a.v) * copysign(V(1), b.v))};
}
template <class V>
DT_HD inline Dual<V> nextafter(const Dual<V>& a, const Dual<V>& b) {
  return {nextafter(a.v, b.v), a.d};
}
template <class V>
DT_HD inline Dual<V> logaddexp(const Dual<V>& a, const Dual<V>& b) {
  const V gap = select(a.v == b.v, V(0), a.v - b.v);
  return {logaddexp(a.v, b.v), a.d * sigmoid(gap) + b.d * sigmoid(-gap)};
}
template <class V>
DT_HD inline Dual<V> xlogy(const Dual<V>& a, const Dual<V>& b) {
  return {xlogy(a.v, b.v),
          scaled(a.d, xlogy(select(a.v == V(0), V(0), V(1)), b.v)) +
              scaled(b.d, a.v / b.v)};
}

// The functions below have no derivative by a: slope_a is false (function.h).
template <class V>
DT_HD inline Dual<V> gamma_density(const Dual<V>& a, const Dual<V>& x) {
  const V y = gamma_density(a.v, x.v);
  return {y, scaled(x.d, y * ((a.v - V(1)) / x.v - V(1)))};
}
template <class V>
DT_HD inline Dual<V> igamma(const Dual<V>& a, const Dual<V>& x) {
  return {igamma(a.v, x.v), scaled(x.d, gamma_density(a.v, x.v))};
}
template <class V>
DT_HD inline Dual<V> igammac(const Dual<V>& a, const Dual<V>& x) {
  return {igammac(a.v, x.v), scaled(x.d, -gamma_density(a.v, x.v))};
}
template <class V>
DT_HD inline Dual<V> zeta(const Dual<V>& a, const Dual<V>& b) {
  return {zeta(a.v, b.v), scaled(b.d, -a.v * zeta(a.v + V(1), b.v))};
}

}  // namespace dtensor::fn
