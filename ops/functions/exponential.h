// SPDX-License-Identifier: Apache-2.0
// Powers, exponentials, logarithms and functions made of them.
#pragma once
#include "dtensor/ops/functions/function.h"

namespace dtensor::fn {

DT_ELEMENTARY(Exp, exp, const char* notes = "up 0")
DT_ELEMENTARY(Exp2, exp2, const char* notes = "up 0")
DT_ELEMENTARY(Expm1, expm1, const char* notes = "up 0")
DT_ELEMENTARY(Log, log, Domain domain{0.25, 2.75})
DT_ELEMENTARY(Log2, log2, Domain domain{0.25, 2.75})
DT_ELEMENTARY(Log10, log10, Domain domain{0.25, 2.75})
DT_ELEMENTARY(Log1p, log1p, Domain domain{-0.75, 2.75})
DT_ELEMENTARY(Sqrt, sqrt, Domain domain{0.25, 2.75})
struct Rsqrt {
  static constexpr const char* name = "rsqrt";
  static constexpr Domain domain{0.25, 2.75};
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return V(1) / sqrt(x);
  }
};
struct Square {
  static constexpr const char* name = "square";
  static constexpr Takes takes = Takes::kCounts;
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return x * x;
  }
};
// x ^ p[0]. Integers are squared repeatedly, and pow_scalar() throws Error if
// p[0] < 0. Floats give what C's pow() gives, up to rounding. But vectors on
// the CPU use sqrt() for p[0] = 0.5 (NaN at -inf, where pow() is inf), and
// 1 / (x * x) for p[0] = -2 (0 if x * x overflows).
struct PowScalar {
  static constexpr const char* name = "pow_scalar";
  static constexpr Param params[] = {{"exponent", NAN, -0.7}};
  static constexpr Takes takes = Takes::kNumbers;
  static constexpr bool promotes = true;
  static constexpr Domain domain{0.25, 2.75};
  template <class V>
  DT_HD static V value(const V& x, const double* p) {
    return pow(x, p[0]);
  }
};
DT_ELEMENTARY(Erf, erf, const char* notes = "up 0")
DT_ELEMENTARY(Erfc, erfc, const char* notes = "down 0")
struct Ndtr {  // Phi, the distribution function of the standard normal
  static constexpr const char* name = "ndtr";
  static constexpr const char* notes = "up 0";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return V(0.5) * erfc(x * V(-0.70710678118654752));
  }
};
struct Entr {  // -x * log(x); 0 for x = 0, -inf for x < 0
  static constexpr const char* name = "entr";
  static constexpr Domain domain{0.25, 2.75};
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    const V y = -(x * log(x));
    return select(x == V(0), V(0), select(x < V(0), V(-HUGE_VAL), y));
  }
};
// log(x / (1 - x)). If eps >= 0, x is first clamped to [eps, 1 - eps].
struct Logit {
  static constexpr const char* name = "logit";
  static constexpr Param params[] = {{"eps", -1, 0.25}};
  static constexpr Domain domain{0, 1};
  template <class V>
  DT_HD static V value(const V& x, const double* p) {
    const V lo(p[0] < 0 ? -HUGE_VAL : p[0]), hi(p[0] < 0 ? HUGE_VAL : 1 - p[0]);
    const V z = select(x < lo, lo, select(x > hi, hi, x));
    return log(z / (V(1) - z));
  }
};

// a ^ b. For integers, a negative b gives 0, unless a is 1 or -1. At a = 0, the
// derivatives are PyTorch's: the one by a is 0 if b = 0, and the one by b is 0
// if b >= 0.
struct Pow {
  static constexpr const char* name = "pow";
  static constexpr Takes takes = Takes::kNumbers;
  static constexpr Domain domain{0.25, 2.75};
  template <class V>
  DT_HD static V value(const V& a, const V& b, const double*) {
    return pow(a, b);
  }
};
struct Ldexp {  // a * 2^b
  static constexpr const char* name = "ldexp";
  template <class V>
  DT_HD static V value(const V& a, const V& b, const double*) {
    return a * exp2(b);
  }
};
struct LogAddExp {  // log(exp(a) + exp(b))
  static constexpr const char* name = "logaddexp";
  template <class V>
  DT_HD static V value(const V& a, const V& b, const double*) {
    return logaddexp(a, b);
  }
};
struct LogAddExp2 {  // log2(2^a + 2^b)
  static constexpr const char* name = "logaddexp2";
  template <class V>
  DT_HD static V value(const V& a, const V& b, const double*) {
    const V log_2(0.69314718055994531);
    return logaddexp(a * log_2, b * log_2) / log_2;
  }
};
struct XLogY {  // a * log(b); 0 where a = 0, unless b is NaN
  static constexpr const char* name = "xlogy";
  static constexpr Domain domain_b{0.25, 2.75};
  template <class V>
  DT_HD static V value(const V& a, const V& b, const double*) {
    return xlogy(a, b);
  }
};
struct XLog1pY {  // a * log(1 + b); 0 where a = 0, unless b is NaN
  static constexpr const char* name = "xlog1py";
  static constexpr Domain domain_b{-0.75, 2.75};
  template <class V>
  DT_HD static V value(const V& a, const V& b, const double*) {
    return select((a == V(0)) & (b == b), V(0), a * log1p(b));
  }
};

#define DT_EXPONENTIAL_UNARY(DT_FUNCTION, DT_FUNCTION_P) \
  DT_FUNCTION(Exp, exp)                                  \
  DT_FUNCTION(Exp2, exp2)                                \
  DT_FUNCTION(Expm1, expm1)                              \
  DT_FUNCTION(Log, log)                                  \
  DT_FUNCTION(Log2, log2)                                \
  DT_FUNCTION(Log10, log10)                              \
  DT_FUNCTION(Log1p, log1p)                              \
  DT_FUNCTION(Sqrt, sqrt)                                \
  DT_FUNCTION(Rsqrt, rsqrt)                              \
  DT_FUNCTION(Square, square)                            \
  DT_FUNCTION_P(PowScalar, pow_scalar)                   \
  DT_FUNCTION(Erf, erf)                                  \
  DT_FUNCTION(Erfc, erfc)                                \
  DT_FUNCTION(Ndtr, ndtr)                                \
  DT_FUNCTION(Entr, entr)                                \
  DT_FUNCTION_P(Logit, logit)
#define DT_EXPONENTIAL_BINARY(DT_FUNCTION, DT_FUNCTION_P) \
  DT_FUNCTION(Pow, pow)                                   \
  DT_FUNCTION(Ldexp, ldexp)                               \
  DT_FUNCTION(LogAddExp, logaddexp)                       \
  DT_FUNCTION(LogAddExp2, logaddexp2)                     \
  DT_FUNCTION(XLogY, xlogy)                               \
  DT_FUNCTION(XLog1pY, xlog1py)

}  // namespace dtensor::fn
