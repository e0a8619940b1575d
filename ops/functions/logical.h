// Truth values, bits, and divisors of integers.
#pragma once
#include "dtensor/ops/functions/function.h"

namespace dtensor::fn {

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

#define DT_BITWISE(F, text, kTakes, op)                           \
  struct F {                                                      \
    static constexpr const char* name = text;                     \
    static constexpr Takes takes = kTakes;                        \
    template <class V>                                            \
    DT_HD static V value(const V& a, const V& b, const double*) { \
      return a op b;                                              \
    }                                                             \
  };
DT_BITWISE(BitwiseAnd, "bitwise_and", Takes::kBits, &)
DT_BITWISE(BitwiseOr, "bitwise_or", Takes::kBits, |)
DT_BITWISE(BitwiseXor, "bitwise_xor", Takes::kBits, ^)
// Shifts by a negative amount, or by the type's width or more, shift out all
// bits.
DT_BITWISE(ShiftLeft, "bitwise_left_shift", Takes::kIntegers, <<)
DT_BITWISE(ShiftRight, "bitwise_right_shift", Takes::kIntegers, >>)
#undef DT_BITWISE

struct Gcd {  // not negative; gcd(a, 0) = |a|
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
struct Lcm {  // not negative; lcm(a, 0) = 0
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
