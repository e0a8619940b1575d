// SPDX-License-Identifier: Apache-2.0
// Rounding, remainders and rounding divisions. Rounding returns integers
// unchanged.
#pragma once
#include "dtensor/ops/functions/function.h"

namespace dtensor::fn {

#define DT_ROUNDING(F, text, function)                \
  struct F {                                          \
    static constexpr const char* name = text;         \
    static constexpr const char* notes = "up 0";      \
    static constexpr Takes takes = Takes::kNumbers;   \
    template <class V>                                \
    DT_HD static V value(const V& x, const double*) { \
      if constexpr (is_int<V>)                        \
        return x;                                     \
      else                                            \
        return function(x);                           \
    }                                                 \
  };
DT_ROUNDING(Floor, "floor", floor)
DT_ROUNDING(Ceil, "ceil", ceil)
DT_ROUNDING(Trunc, "trunc", trunc)
#undef DT_ROUNDING

// Rounds to a multiple of 10^-p[0], ties to even.
struct Round {
  static constexpr const char* name = "round";
  static constexpr const char* notes = "up 0";
  static constexpr Param params[] = {{"decimals", 0}};
  static constexpr Takes takes = Takes::kNumbers;
  template <class V>
  DT_HD static V value(const V& x, const double* p) {
    if constexpr (is_int<V>) {
      return x;
    } else {
      if (p[0] == 0) return round(x);
      const V ten(std::pow(10.0, std::abs(p[0])));
      return p[0] > 0 ? round(x * ten) / ten : round(x / ten) * ten;
    }
  }
};
struct Frac {  // x - trunc(x)
  static constexpr const char* name = "frac";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return x - trunc(x);
  }
};

// In the functions below, dividing an integer by 0 gives 0.
struct Fmod {  // a - b trunc(a / b), exact; has the sign of a
  static constexpr const char* name = "fmod";
  static constexpr Takes takes = Takes::kNumbers;
  static constexpr Domain domain_b{4, 8};
  template <class V>
  DT_HD static V value(const V& a, const V& b, const double*) {
    if constexpr (is_int<V>)
      return a % b;
    else
      return fmod(a, b);
  }
};
struct Remainder {  // a - b floor(a / b), rounded once; b's sign, as Python's %
  static constexpr const char* name = "remainder";
  static constexpr Takes takes = Takes::kNumbers;
  static constexpr Domain domain_b{4, 8};
  template <class V>
  DT_HD static V value(const V& a, const V& b, const double*) {
    const V r = Fmod::value(a, b, nullptr);
    const auto other = ((r < V(0)) & (b > V(0))) | ((r > V(0)) & (b < V(0)));
    return select(other, r + b, r);
  }
};
struct FloorDivide {  // the largest whole number not above a / b
  static constexpr const char* name = "floor_divide";
  static constexpr Takes takes = Takes::kNumbers;
  static constexpr Domain domain_b{4, 8};
  template <class V>
  DT_HD static V value(const V& a, const V& b, const double*) {
    if constexpr (is_int<V>) {
      // q is one too large if there is a rest, and the signs differ.
      const V q = a / b, r = a - q * b;
      return select((r != V(0)) & (b != V(0)) & ((r < V(0)) != (b < V(0))),
                    q - V(1), q);
    } else {
      // a - r is a multiple of b, so the quotient is whole, up to rounding. It
      // is one too large if a and b have different signs.
      const V r = Fmod::value(a, b, nullptr), q = (a - r) / b;
      const auto other = ((r < V(0)) & (b > V(0))) | ((r > V(0)) & (b < V(0)));
      return select(b == V(0), a / b, round(select(other, q - V(1), q)));
    }
  }
};
struct TruncDivide {  // a / b, rounded towards 0: torch's div(...,
                      // rounding_mode="trunc")
  static constexpr const char* name = "trunc_divide";
  static constexpr Takes takes = Takes::kNumbers;
  static constexpr Domain domain_b{4, 8};
  template <class V>
  DT_HD static V value(const V& a, const V& b, const double*) {
    if constexpr (is_int<V>)
      return a / b;
    else
      return trunc(a / b);
  }
};

#define DT_ROUNDING_UNARY(DT_FUNCTION, DT_FUNCTION_P) \
  DT_FUNCTION(Floor, floor)                           \
  DT_FUNCTION(Ceil, ceil)                             \
  DT_FUNCTION(Trunc, trunc)                           \
  DT_FUNCTION_P(Round, round)                         \
  DT_FUNCTION(Frac, frac)
#define DT_ROUNDING_BINARY(DT_FUNCTION, DT_FUNCTION_P) \
  DT_FUNCTION(Fmod, fmod)                              \
  DT_FUNCTION(Remainder, remainder)                    \
  DT_FUNCTION(FloorDivide, floor_divide)               \
  DT_FUNCTION(TruncDivide, trunc_divide)

}  // namespace dtensor::fn
