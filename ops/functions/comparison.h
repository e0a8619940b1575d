// SPDX-License-Identifier: Apache-2.0
// Comparisons, predicates and logical operators take any type. Operators on
// bits or divisors take integers, and some take bools. A comparison with NaN is
// false, except ne, and isclose of two NaNs with equal_nan.
#pragma once
#include "dtensor/ops/functions/function.h"

namespace dtensor::fn {

#define DT_PREDICATE(F, text, expression)                \
  struct F {                                             \
    static constexpr const char* name = text;            \
    static constexpr Takes takes = Takes::kAll;          \
    static constexpr bool gives_bool = true;             \
    template <class V>                                   \
    DT_HD static bool value(const V& x, const double*) { \
      return expression;                                 \
    }                                                    \
  };
DT_PREDICATE(IsNan, "isnan", x != x)
DT_PREDICATE(IsFinite, "isfinite", x - x == V(0))
DT_PREDICATE(IsInf, "isinf", x == x && x - x != V(0))
DT_PREDICATE(IsPosInf, "isposinf", x > V(0) && x - x != V(0))
DT_PREDICATE(IsNegInf, "isneginf", x < V(0) && x - x != V(0))
DT_PREDICATE(LogicalNot, "logical_not", x == V(0))
#undef DT_PREDICATE

struct Signbit {  // true for -0.0, too
  static constexpr const char* name = "signbit";
  static constexpr Takes takes = Takes::kAll;
  static constexpr bool gives_bool = true;
  template <class V>
  DT_HD static bool value(const V& x, const double*) {
    if constexpr (is_int<V>)
      return x < V(0);
    else
      return copysign(V(1), x) < V(0);
  }
};

#define DT_COMPARISON(F, text, op)                                   \
  struct F {                                                         \
    static constexpr const char* name = text;                        \
    static constexpr Takes takes = Takes::kAll;                      \
    static constexpr bool gives_bool = true;                         \
    template <class V>                                               \
    DT_HD static bool value(const V& a, const V& b, const double*) { \
      return a op b;                                                 \
    }                                                                \
  };
DT_COMPARISON(Eq, "eq", ==)
DT_COMPARISON(Ne, "ne", !=)
DT_COMPARISON(Lt, "lt", <)
DT_COMPARISON(Le, "le", <=)
DT_COMPARISON(Gt, "gt", >)
DT_COMPARISON(Ge, "ge", >=)
#undef DT_COMPARISON

// |a - b| <= atol + rtol * |b| with a finite left side, or a == b, or both NaN
// if equal_nan is not 0. The difference is computed in f64.
struct IsClose {
  static constexpr const char* name = "isclose";
  static constexpr Param params[] = {
      {"rtol", 1e-5, 0.5}, {"atol", 1e-8}, {"equal_nan", 0}};
  static constexpr Takes takes = Takes::kAll;
  static constexpr bool gives_bool = true;
  template <class V>
  DT_HD static bool value(const V& a, const V& b, const double* p) {
    double x, y;
    if constexpr (is_int<V>)
      x = static_cast<double>(a.v), y = static_cast<double>(b.v);
    else
      x = a, y = b;
    const double gap = abs(x - y);
    return a == b || (gap < HUGE_VAL && gap <= p[1] + abs(p[0] * y)) ||
           (p[2] != 0 && x != x && y != y);
  }
};

#define DT_COMPARISON_UNARY(DT_FUNCTION, DT_FUNCTION_P) \
  DT_FUNCTION(IsNan, isnan)                             \
  DT_FUNCTION(IsFinite, isfinite)                       \
  DT_FUNCTION(IsInf, isinf)                             \
  DT_FUNCTION(IsPosInf, isposinf)                       \
  DT_FUNCTION(IsNegInf, isneginf)                       \
  DT_FUNCTION(Signbit, signbit)                         \
  DT_FUNCTION(LogicalNot, logical_not)
#define DT_COMPARISON_BINARY(DT_FUNCTION, DT_FUNCTION_P) \
  DT_FUNCTION(Eq, eq)                                    \
  DT_FUNCTION(Ne, ne)                                    \
  DT_FUNCTION(Lt, lt)                                    \
  DT_FUNCTION(Le, le)                                    \
  DT_FUNCTION(Gt, gt)                                    \
  DT_FUNCTION(Ge, ge)                                    \
  DT_FUNCTION_P(IsClose, isclose)

// ---- Truth values, bits, and divisors ----

struct BitwiseNot {  // logical_not for bools
  static constexpr const char* name = "bitwise_not";
  static constexpr Takes takes = Takes::kBits;
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return ~x;
  }
};

// Operands count as true if they are != 0.
#define DT_LOGICAL(F, text, op)                                      \
  struct F {                                                         \
    static constexpr const char* name = text;                        \
    static constexpr Takes takes = Takes::kAll;                      \
    static constexpr bool gives_bool = true;                         \
    template <class V>                                               \
    DT_HD static bool value(const V& a, const V& b, const double*) { \
      return (a != V(0)) op(b != V(0));                              \
    }                                                                \
  };
DT_LOGICAL(LogicalAnd, "logical_and", &)
DT_LOGICAL(LogicalOr, "logical_or", |)
DT_LOGICAL(LogicalXor, "logical_xor", ^)
#undef DT_LOGICAL

DT_INFIX(BitwiseAnd, "bitwise_and", "", Takes::kBits, &)
DT_INFIX(BitwiseOr, "bitwise_or", "", Takes::kBits, |)
DT_INFIX(BitwiseXor, "bitwise_xor", "", Takes::kBits, ^)
// Shifts by a negative amount, or by the type's width or more, shift out all
// bits: << gives 0, and >> gives 0 or, for a negative number, -1.
DT_INFIX(ShiftLeft, "bitwise_left_shift", "", Takes::kIntegers, <<)
DT_INFIX(ShiftRight, "bitwise_right_shift", "", Takes::kIntegers, >>)

struct Gcd {  // not negative, unless |a| or |b| overflows; gcd(a, 0) = |a|
  static constexpr const char* name = "gcd";
  static constexpr Takes takes = Takes::kIntegers;
  template <class V>
  DT_HD static V value(const V& a, const V& b, const double*) {
    V x = abs(a), y = abs(b);
    while (y != V(0)) {
      const V r = x % y;
      x = y, y = r;
    }
    return x;
  }
};
struct Lcm {  // not negative, unless it overflows; lcm(a, 0) = 0
  static constexpr const char* name = "lcm";
  static constexpr Takes takes = Takes::kIntegers;
  template <class V>
  DT_HD static V value(const V& a, const V& b, const double*) {
    return abs(a / Gcd::value(a, b, nullptr) * b);
  }
};

#define DT_LOGICAL_UNARY(DT_FUNCTION, DT_FUNCTION_P) \
  DT_FUNCTION(BitwiseNot, bitwise_not)
#define DT_LOGICAL_BINARY(DT_FUNCTION, DT_FUNCTION_P) \
  DT_FUNCTION(LogicalAnd, logical_and)                \
  DT_FUNCTION(LogicalOr, logical_or)                  \
  DT_FUNCTION(LogicalXor, logical_xor)                \
  DT_FUNCTION(BitwiseAnd, bitwise_and)                \
  DT_FUNCTION(BitwiseOr, bitwise_or)                  \
  DT_FUNCTION(BitwiseXor, bitwise_xor)                \
  DT_FUNCTION(ShiftLeft, bitwise_left_shift)          \
  DT_FUNCTION(ShiftRight, bitwise_right_shift)        \
  DT_FUNCTION(Gcd, gcd)                               \
  DT_FUNCTION(Lcm, lcm)

}  // namespace dtensor::fn
