// SPDX-License-Identifier: Apache-2.0
// Circular and hyperbolic functions and their inverses. Angles are in radians.
//
// hypot is the example in docs/adding_an_operator.md: a struct, and its line in
// the list at the end.
#pragma once
#include "dtensor/ops/functions/function.h"

namespace dtensor::fn {

DT_ELEMENTARY(Sin, sin, const char* notes = "")
DT_ELEMENTARY(Cos, cos, const char* notes = "")
DT_ELEMENTARY(Tan, tan, Domain domain{-1, 1})
DT_ELEMENTARY(Asin, asin, Domain domain{-1, 1})
DT_ELEMENTARY(Acos, acos, Domain domain{-1, 1})
DT_ELEMENTARY(Atan, atan, const char* notes = "up 0")
DT_ELEMENTARY(Sinh, sinh, const char* notes = "up 0")
DT_ELEMENTARY(Cosh, cosh, const char* notes = "")
DT_ELEMENTARY(Tanh, tanh, const char* notes = "up 0")
DT_ELEMENTARY(Asinh, asinh, const char* notes = "up 0")
DT_ELEMENTARY(Acosh, acosh, Domain domain{1.5, 4})
DT_ELEMENTARY(Atanh, atanh, Domain domain{-1, 1})
struct Sinc {  // sin(pi x) / (pi x); 1 at 0
  static constexpr const char* name = "sinc";
  static constexpr Domain domain{0.25, 2.75};
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    const V y = V(3.1415926535897932) * select(x == V(0), V(1), x);
    return select(x == V(0), V(1), sin(y) / y);
  }
};
struct Deg2Rad {
  static constexpr const char* name = "deg2rad";
  static constexpr const char* notes = "linear 0; up 0";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return x * V(0.017453292519943296);
  }
};
struct Rad2Deg {
  static constexpr const char* name = "rad2deg";
  static constexpr const char* notes = "linear 0; up 0";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return x * V(57.295779513082321);
  }
};

struct Atan2 {  // the angle of the point (b, a)
  static constexpr const char* name = "atan2";
  static constexpr Domain domain_b{0.5, 3};
  template <class V>
  DT_HD static V value(const V& a, const V& b, const double*) {
    return atan2(a, b);
  }
};
struct Hypot {  // sqrt(a^2 + b^2), without overflow
  static constexpr const char* name = "hypot";
  static constexpr Domain domain_b{0.5, 3};
  template <class V>
  DT_HD static V value(const V& a, const V& b, const double*) {
    return hypot(a, b);
  }
};

#define DT_TRIGONOMETRIC_UNARY(DT_FUNCTION, DT_FUNCTION_P) \
  DT_FUNCTION(Sin, sin)                                    \
  DT_FUNCTION(Cos, cos)                                    \
  DT_FUNCTION(Tan, tan)                                    \
  DT_FUNCTION(Asin, asin)                                  \
  DT_FUNCTION(Acos, acos)                                  \
  DT_FUNCTION(Atan, atan)                                  \
  DT_FUNCTION(Sinh, sinh)                                  \
  DT_FUNCTION(Cosh, cosh)                                  \
  DT_FUNCTION(Tanh, tanh)                                  \
  DT_FUNCTION(Asinh, asinh)                                \
  DT_FUNCTION(Acosh, acosh)                                \
  DT_FUNCTION(Atanh, atanh)                                \
  DT_FUNCTION(Sinc, sinc)                                  \
  DT_FUNCTION(Deg2Rad, deg2rad)                            \
  DT_FUNCTION(Rad2Deg, rad2deg)
#define DT_TRIGONOMETRIC_BINARY(DT_FUNCTION, DT_FUNCTION_P) \
  DT_FUNCTION(Atan2, atan2)                                 \
  DT_FUNCTION(Hypot, hypot)

}  // namespace dtensor::fn
