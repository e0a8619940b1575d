// SPDX-License-Identifier: Apache-2.0
// The functions that the `value` of a pointwise function (function.h) may call
// on scalars: float, double, and Int, an integer with arithmetic that is always
// defined. Vector types have their own overloads, which argument-dependent
// lookup finds.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#ifdef __CUDACC__
#define DT_HD __host__ __device__
#else
#define DT_HD
#endif

namespace dtensor::fn {

#define DT_SCALAR_MATH(name)                                \
  DT_HD inline float name(float x) { return std::name(x); } \
  DT_HD inline double name(double x) { return std::name(x); }
DT_SCALAR_MATH(exp)
DT_SCALAR_MATH(exp2)
DT_SCALAR_MATH(expm1)
DT_SCALAR_MATH(log)
DT_SCALAR_MATH(log2)
DT_SCALAR_MATH(log10)
DT_SCALAR_MATH(log1p)
DT_SCALAR_MATH(sqrt)
DT_SCALAR_MATH(sin)
DT_SCALAR_MATH(cos)
DT_SCALAR_MATH(tan)
DT_SCALAR_MATH(asin)
DT_SCALAR_MATH(acos)
DT_SCALAR_MATH(atan)
DT_SCALAR_MATH(sinh)
DT_SCALAR_MATH(cosh)
DT_SCALAR_MATH(tanh)
DT_SCALAR_MATH(asinh)
DT_SCALAR_MATH(acosh)
DT_SCALAR_MATH(atanh)
DT_SCALAR_MATH(erf)
DT_SCALAR_MATH(erfc)
DT_SCALAR_MATH(floor)
DT_SCALAR_MATH(ceil)
DT_SCALAR_MATH(trunc)
#undef DT_SCALAR_MATH
#define DT_SCALAR_MATH(name)                                            \
  DT_HD inline float name(float x, float y) { return std::name(x, y); } \
  DT_HD inline double name(double x, double y) { return std::name(x, y); }
DT_SCALAR_MATH(pow)
DT_SCALAR_MATH(atan2)
DT_SCALAR_MATH(hypot)
DT_SCALAR_MATH(fmod)
DT_SCALAR_MATH(copysign)
DT_SCALAR_MATH(nextafter)
#undef DT_SCALAR_MATH
DT_HD inline float fma(float a, float b, float c) { return std::fma(a, b, c); }
DT_HD inline double fma(double a, double b, double c) {
  return std::fma(a, b, c);
}
// Rounds to nearest, ties to even.
DT_HD inline float round(float x) { return std::nearbyint(x); }
DT_HD inline double round(double x) { return std::nearbyint(x); }
// The power for an exponent that is a parameter of the function.
DT_HD inline float pow(float x, double p) {
  return std::pow(x, static_cast<float>(p));
}

// An integer of type T. For bools, T is uint8_t: 0 is false, and any other
// value is true. Sums and products wrap around; a / 0 and a % 0 are 0; shifts
// by a negative amount, or by the width or more, shift out all bits.
template <class T>
struct Int {
  using U = std::make_unsigned_t<T>;
  static constexpr int kBits = 8 * sizeof(T);
  static constexpr bool kBool = sizeof(T) == 1;
  T v;
  Int() = default;
  // Floats saturate; NaN becomes 0.
  template <class C>
  requires std::is_arithmetic_v<C> DT_HD explicit Int(C c) {
    if constexpr (std::is_integral_v<C>) {
      v = static_cast<T>(c);
    } else {
      constexpr C kEnd = C(uint64_t{1} << (kBits - (kBool ? 0 : 1)));
      constexpr C kLow = kBool ? C(0) : -kEnd;
      v = c != c      ? T(0)
          : c >= kEnd ? std::numeric_limits<T>::max()
          : c <= kLow ? std::numeric_limits<T>::min()
                      : static_cast<T>(c);
    }
  }
  DT_HD static Int wrap(U x) { return Int(static_cast<T>(x)); }

  DT_HD Int operator-() const { return wrap(U(0) - U(v)); }
  DT_HD Int operator~() const {
    if constexpr (kBool) return Int(T(v == 0));
    return Int(static_cast<T>(~v));
  }
  DT_HD Int operator+(Int o) const { return wrap(U(v) + U(o.v)); }
  DT_HD Int operator-(Int o) const { return wrap(U(v) - U(o.v)); }
  DT_HD Int operator*(Int o) const { return wrap(U(v) * U(o.v)); }
  DT_HD Int operator/(Int o) const {
    if (o.v == 0) return Int(T(0));
    if (o.v == T(-1) && !kBool) return -*this;
    return Int(static_cast<T>(v / o.v));
  }
  DT_HD Int operator%(Int o) const {
    if (o.v == 0 || (o.v == T(-1) && !kBool)) return Int(T(0));
    return Int(static_cast<T>(v % o.v));
  }
  DT_HD Int operator&(Int o) const { return Int(static_cast<T>(v & o.v)); }
  DT_HD Int operator|(Int o) const { return Int(static_cast<T>(v | o.v)); }
  DT_HD Int operator^(Int o) const { return Int(static_cast<T>(v ^ o.v)); }
  DT_HD Int operator<<(Int o) const {
    return o.v < 0 || o.v >= kBits ? Int(T(0)) : wrap(U(v) << o.v);
  }
  DT_HD Int operator>>(Int o) const {
    const bool out = o.v < 0 || o.v >= kBits;
    return Int(static_cast<T>(v >> (out ? kBits - 1 : o.v)));
  }
  DT_HD bool operator==(Int o) const { return v == o.v; }
  DT_HD bool operator!=(Int o) const { return v != o.v; }
  DT_HD bool operator<(Int o) const { return v < o.v; }
  DT_HD bool operator<=(Int o) const { return v <= o.v; }
  DT_HD bool operator>(Int o) const { return v > o.v; }
  DT_HD bool operator>=(Int o) const { return v >= o.v; }
};
template <class V>
inline constexpr bool is_int = false;
template <class T>
inline constexpr bool is_int<Int<T>> = true;

template <class T>
requires std::is_arithmetic_v<T> DT_HD inline T select(bool c, T a, T b) {
  return c ? a : b;
}
template <class T>
DT_HD inline Int<T> select(bool c, Int<T> a, Int<T> b) {
  return c ? a : b;
}
template <class T>
requires std::is_arithmetic_v<T> DT_HD inline T abs(T x) {
  return x < T(0) ? -x : x + T(0);  // + 0: abs(-0.0) is 0.0
}
template <class T>
DT_HD inline Int<T> abs(Int<T> x) {
  return x.v < 0 ? -x : x;
}
// x to the power n, by squaring. Negative powers are 0, unless x is 1 or -1.
template <class T>
DT_HD inline Int<T> pow(Int<T> x, Int<T> n) {
  if (n.v < 0)
    return Int<T>(T(x.v == 1 ? 1 : x.v != T(-1) ? 0 : n.v % 2 ? -1 : 1));
  Int<T> r(T(1));
  for (T k = n.v; k > 0; k = static_cast<T>(k / 2), x = x * x)
    if (k % 2) r = r * x;
  return r;
}
template <class T>
DT_HD inline Int<T> pow(Int<T> x, double n) {
  return pow(x, Int<T>(n));
}

// --- Composed of the functions above, for every V ----------------------------
// max() and min() are NaN if either operand is NaN.
template <class V>
DT_HD inline V max(const V& a, const V& b) {
  return select((a > b) | (a != a), a, b);
}
template <class V>
DT_HD inline V min(const V& a, const V& b) {
  return select((a < b) | (a != a), a, b);
}
template <class V>
DT_HD inline V sign(const V& x) {
  return select(x > V(0), V(1), select(x < V(0), V(-1), V(0)));
}
template <class V>
DT_HD inline V quotient(const V& a, const V& b) {
  return a / b;
}
// 1 / (1 + exp(-x)); 0 and 1 at the infinities.
template <class V>
DT_HD inline V sigmoid(const V& x) {
  return V(1) / (V(1) + exp(-x));
}
// log(1 + exp(x)), without overflow.
template <class V>
DT_HD inline V softplus(const V& x) {
  return select(x > V(0), x, V(0)) + log1p(exp(select(x > V(0), -x, x)));
}
// log(exp(a) + exp(b)), without overflow.
template <class V>
DT_HD inline V logaddexp(const V& a, const V& b) {
  const V gap = select(a == b, V(0), abs(a - b));  // avoids inf - inf
  return max(a, b) + log1p(exp(-gap));
}
// a * log(b); 0 if a = 0, unless b is NaN.
template <class V>
DT_HD inline V xlogy(const V& a, const V& b) {
  return select((a == V(0)) & (b == b), V(0), a * log(b));
}

}  // namespace dtensor::fn
