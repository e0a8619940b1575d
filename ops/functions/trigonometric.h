// Circular and hyperbolic functions and their inverses. Angles are in radians.
//
// hypot is the example in docs/adding_an_operator.md: a struct, and its line in
// the list at the end.
#pragma once
#include "dtensor/ops/functions/function.h"

namespace dtensor::fn {

struct Sin {
  static constexpr const char* name = "sin";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return sin(x);
  }
};
struct Cos {
  static constexpr const char* name = "cos";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return cos(x);
  }
};
struct Tan {
  static constexpr const char* name = "tan";
  static constexpr Domain domain{-1, 1};
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return tan(x);
  }
};
struct Asin {
  static constexpr const char* name = "asin";
  static constexpr Domain domain{-1, 1};
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return asin(x);
  }
};
struct Acos {
  static constexpr const char* name = "acos";
  static constexpr Domain domain{-1, 1};
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return acos(x);
  }
};
struct Atan {
  static constexpr const char* name = "atan";
  static constexpr const char* notes = "up 0";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return atan(x);
  }
};
struct Sinh {
  static constexpr const char* name = "sinh";
  static constexpr const char* notes = "up 0";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return sinh(x);
  }
};
struct Cosh {
  static constexpr const char* name = "cosh";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return cosh(x);
  }
};
struct Tanh {
  static constexpr const char* name = "tanh";
  static constexpr const char* notes = "up 0";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return tanh(x);
  }
};
struct Asinh {
  static constexpr const char* name = "asinh";
  static constexpr const char* notes = "up 0";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return asinh(x);
  }
};
struct Acosh {
  static constexpr const char* name = "acosh";
  static constexpr Domain domain{1.5, 4};
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return acosh(x);
  }
};
struct Atanh {
  static constexpr const char* name = "atanh";
  static constexpr Domain domain{-1, 1};
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return atanh(x);
  }
};
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
