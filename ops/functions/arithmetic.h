// SPDX-License-Identifier: Apache-2.0
// Arithmetic, signs and bounds. Sums and products of integers wrap around; for
// bools they are "or" and "and".
#pragma once
#include "dtensor/ops/functions/function.h"

namespace dtensor::fn {

struct Neg {
  static constexpr const char* name = "neg";
  static constexpr const char* notes = "linear 0; down 0";
  static constexpr Takes takes = Takes::kNumbers;
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return -x;
  }
};
struct Positive {
  static constexpr const char* name = "positive";
  static constexpr const char* notes = "linear 0; up 0";
  static constexpr Takes takes = Takes::kNumbers;
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return x;
  }
};
struct Abs {  // derivative 0 at 0
  static constexpr const char* name = "abs";
  static constexpr Takes takes = Takes::kNumbers;
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return abs(x);
  }
};
struct Sign {  // sign(0) = sign(NaN) = 0, derivative 0
  static constexpr const char* name = "sign";
  static constexpr const char* notes = "up 0";
  static constexpr Takes takes = Takes::kAll;
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return sign(x);
  }
};
struct Sgn : Sign {  // equal to sign for real numbers
  static constexpr const char* name = "sgn";
};
struct Reciprocal {
  static constexpr const char* name = "reciprocal";
  static constexpr Domain domain{0.25, 2.75};
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return V(1) / x;
  }
};
struct AddScalar {
  static constexpr const char* name = "add_scalar";
  static constexpr const char* notes = "affine 0; up 0";
  static constexpr Param params[] = {{"other", NAN, -0.7}};
  static constexpr Takes takes = Takes::kNumbers;
  static constexpr bool promotes = true;
  template <class V>
  DT_HD static V value(const V& x, const double* p) {
    return x + V(p[0]);
  }
};
struct MulScalar {
  static constexpr const char* name = "mul_scalar";
  static constexpr const char* notes = "linear 0";
  static constexpr Param params[] = {{"other", NAN, -0.7}};
  static constexpr Takes takes = Takes::kNumbers;
  static constexpr bool promotes = true;
  template <class V>
  DT_HD static V value(const V& x, const double* p) {
    return x * V(p[0]);
  }
};
struct DivScalar {
  static constexpr const char* name = "div_scalar";
  static constexpr const char* notes = "linear 0";
  static constexpr Param params[] = {{"other", NAN, -0.7}};
  template <class V>
  DT_HD static V value(const V& x, const double* p) {
    return x / V(p[0]);
  }
};
// To [p[0], p[1]]; derivative 1 at both ends; NaN stays NaN, and with a NaN as
// a bound, everything becomes NaN.
struct Clamp {
  static constexpr const char* name = "clamp";
  static constexpr const char* notes = "up 0";
  static constexpr Param params[] = {{"min", NAN, -0.7},
                                     {"max", HUGE_VAL, 1.3}};
  static constexpr Takes takes = Takes::kNumbers;
  static constexpr bool promotes = true;
  template <class V>
  DT_HD static V value(const V& x, const double* p) {
    if constexpr (!is_int<V>)
      if (p[0] != p[0] || p[1] != p[1]) return V(NAN);
    const V y = select(x < V(p[0]), V(p[0]), x);
    return select(y > V(p[1]), V(p[1]), y);
  }
};
// NaN becomes p[0], +inf becomes p[1], and -inf becomes p[2]. The defaults are
// 0, the largest and the lowest finite value.
struct NanToNum {
  static constexpr const char* name = "nan_to_num";
  static constexpr Param params[] = {
      {"nan", 0}, {"posinf", HUGE_VAL, 1}, {"neginf", -HUGE_VAL, -1}};
  static constexpr Takes takes = Takes::kAll;
  static constexpr bool finite = true;
  template <class V>
  DT_HD static V value(const V& x, const double* p) {
    if constexpr (is_int<V>) {
      return x;
    } else {
      const V inf(HUGE_VAL);
      return select(x == inf, V(p[1]),
                    select(x == -inf, V(p[2]), select(x == x, x, V(p[0]))));
    }
  }
};

DT_INFIX(Add, "add", "linear 0,1", Takes::kAll, +)
DT_INFIX(Sub, "sub", "linear 0,1", Takes::kNumbers, -)
// A product with a partial sum multiplies its parts. If the other operand has
// values that are not finite, parts of both signs give NaN; redistribute the
// sum first to avoid that. (mul() does it if a plain number is not finite.)
DT_INFIX(Mul, "mul", "linear 0; linear 1", Takes::kAll, *)
// Not linear in a partial sum: for a = -3 + 1 and b = 0, the sum of the parts'
// quotients is NaN, but a / b is -inf.
struct Div {
  static constexpr const char* name = "div";
  static constexpr Domain domain{0.25, 2.75}, domain_b{0.25, 2.75};
  template <class V>
  DT_HD static V value(const V& a, const V& b, const double*) {
    return quotient(a, b);
  }
};
// NaN if either operand is NaN; both then get the whole gradient. Equal
// operands share the gradient evenly.
struct Maximum {
  static constexpr const char* name = "maximum";
  static constexpr const char* notes = "max 0,1; up 0; up 1";
  static constexpr Takes takes = Takes::kAll;
  template <class V>
  DT_HD static V value(const V& a, const V& b, const double*) {
    return max(a, b);
  }
};
struct Minimum {
  static constexpr const char* name = "minimum";
  static constexpr const char* notes = "min 0,1; up 0; up 1";
  static constexpr Takes takes = Takes::kAll;
  template <class V>
  DT_HD static V value(const V& a, const V& b, const double*) {
    return min(a, b);
  }
};
// NaN only if both operands are NaN. If they are equal, a gets the gradient.
struct Fmax {
  static constexpr const char* name = "fmax";
  static constexpr Takes takes = Takes::kAll;
  template <class V>
  DT_HD static V value(const V& a, const V& b, const double*) {
    return select((a >= b) | (b != b), a, b);
  }
};
struct Fmin {
  static constexpr const char* name = "fmin";
  static constexpr Takes takes = Takes::kAll;
  template <class V>
  DT_HD static V value(const V& a, const V& b, const double*) {
    return select((a <= b) | (b != b), a, b);
  }
};
struct Copysign {  // |a| with the sign of b
  static constexpr const char* name = "copysign";
  template <class V>
  DT_HD static V value(const V& a, const V& b, const double*) {
    return copysign(a, b);
  }
};
struct Nextafter {  // the next value of the type after a, towards b
  static constexpr const char* name = "nextafter";
  static constexpr bool rounds = false;
  template <class V>
  DT_HD static V value(const V& a, const V& b, const double*) {
    return nextafter(a, b);
  }
};
struct Heaviside {  // 0 below 0, 1 above, b at 0; derivative by a is 0
  static constexpr const char* name = "heaviside";
  static constexpr Takes takes = Takes::kAll;
  template <class V>
  DT_HD static V value(const V& a, const V& b, const double*) {
    return select(a == V(0), b,
                  select(a == a, select(a < V(0), V(0), V(1)), a));
  }
};
// a + weight * (b - a). If b - a is finite, exactly a for weight 0, and exactly
// b for weight 1.
struct Lerp {
  static constexpr const char* name = "lerp";
  static constexpr const char* notes = "linear 0,1";
  static constexpr Param params[] = {{"weight", NAN, 0.75}};
  template <class V>
  DT_HD static V value(const V& a, const V& b, const double* p) {
    const V way = b - a;
    return p[0] < 0.5 ? a + way * V(p[0]) : b - way * V(1 - p[0]);
  }
};

#define DT_ARITHMETIC_UNARY(DT_FUNCTION, DT_FUNCTION_P) \
  DT_FUNCTION(Neg, neg)                                 \
  DT_FUNCTION(Positive, positive)                       \
  DT_FUNCTION(Abs, abs)                                 \
  DT_FUNCTION(Sign, sign)                               \
  DT_FUNCTION(Sgn, sgn)                                 \
  DT_FUNCTION(Reciprocal, reciprocal)                   \
  DT_FUNCTION_P(AddScalar, add_scalar)                  \
  DT_FUNCTION_P(MulScalar, mul_scalar)                  \
  DT_FUNCTION_P(DivScalar, div_scalar)                  \
  DT_FUNCTION_P(Clamp, clamp)                           \
  DT_FUNCTION_P(NanToNum, nan_to_num)
#define DT_ARITHMETIC_BINARY(DT_FUNCTION, DT_FUNCTION_P) \
  DT_FUNCTION(Add, add)                                  \
  DT_FUNCTION(Sub, sub)                                  \
  DT_FUNCTION(Mul, mul)                                  \
  DT_FUNCTION(Div, div)                                  \
  DT_FUNCTION(Maximum, maximum)                          \
  DT_FUNCTION(Minimum, minimum)                          \
  DT_FUNCTION(Fmax, fmax)                                \
  DT_FUNCTION(Fmin, fmin)                                \
  DT_FUNCTION(Copysign, copysign)                        \
  DT_FUNCTION(Nextafter, nextafter)                      \
  DT_FUNCTION(Heaviside, heaviside)                      \
  DT_FUNCTION_P(Lerp, lerp)

}  // namespace dtensor::fn
