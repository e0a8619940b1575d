// SPDX-License-Identifier: Apache-2.0
// Element-wise functions, with NumPy's broadcasting and PyTorch's names.
//
// Every function of functions/*.h is a public function here with its name:
// exp(x), leaky_relu(x, 0.2), hypot(a, b). Parameters are numbers, in the order
// and with the defaults of the function's struct. All are differentiable, up to
// three times, where the mathematical function is. A unary function takes any
// dtype that its struct lists (fn::Takes, which also says how it handles
// integers and bools), and throws Error for others. Every rank of the mesh
// calls these functions.
//
// Operands of different types are promoted with promote() (dtype.h). A plain
// number or a tensor without dimensions does not widen a tensor of its kind
// (bool, integer or float). Either operand of a binary function without
// parameters may be a number.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <type_traits>

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/functions/lists.h"
#include "dtensor/placement/dtype.h"

namespace dtensor {

// A plain number as an operand beside tensors, such as 2, 0.5 or true (a scalar
// in PyTorch). Only its kind affects the result's dtype: a float (0.5, and 2.0)
// turns integers and bools into floats, and an integer turns bools into
// integers.
struct Number {
  template <class T>
  requires std::is_arithmetic_v<T> Number(T x)
      : value(static_cast<double>(x)),
        dtype(std::is_floating_point_v<T> ? DType::kF32
              : std::is_same_v<T, bool>   ? DType::kBool
                                          : DType::kI64),
        exact(std::is_floating_point_v<T> ||
              (value < 9.3e18 && static_cast<T>(value) == x)) {}
  double value;
  DType dtype;  // stands for its kind: f32, i64 or bool
  bool exact;   // false if `value` is an integer that had to be rounded
};

namespace internal {
// `index` is the index of the function in fn::UnaryFunctions or
// fn::BinaryFunctions. Missing parameters have their defaults.
using Numbers = std::initializer_list<Number>;
DistTensor unary(int index, const DistTensor& x, Numbers = {});
DistTensor binary(int index, const DistTensor& a, const DistTensor& b,
                  Numbers = {});
DistTensor binary(int index, const DistTensor& a, Number b, Numbers = {});
DistTensor binary(int index, Number a, const DistTensor& b, Numbers = {});

template <class F, class... P>
concept Parameters = sizeof...(P) >= fn::facts<F>().num_required &&
                     sizeof...(P) <= fn::facts<F>().num_params &&
                     (std::is_convertible_v<P, Number> && ...);
}  // namespace internal

#define DT_FUNCTION(F, name)                        \
  inline DistTensor name(const DistTensor& x) {     \
    return internal::unary(fn::index_of<fn::F>, x); \
  }
#define DT_FUNCTION_P(F, name)                                       \
  template <class... P>                                              \
  requires internal::Parameters<fn::F, P...> DistTensor name(        \
      const DistTensor& x, P... parameters) {                        \
    return internal::unary(fn::index_of<fn::F>, x, {parameters...}); \
  }
DT_UNARY_FUNCTIONS(DT_FUNCTION, DT_FUNCTION_P)
#undef DT_FUNCTION
#undef DT_FUNCTION_P

#define DT_FUNCTION(F, name)                                         \
  inline DistTensor name(const DistTensor& a, const DistTensor& b) { \
    return internal::binary(fn::index_of<fn::F>, a, b);              \
  }                                                                  \
  inline DistTensor name(const DistTensor& a, Number b) {            \
    return internal::binary(fn::index_of<fn::F>, a, b);              \
  }                                                                  \
  inline DistTensor name(Number a, const DistTensor& b) {            \
    return internal::binary(fn::index_of<fn::F>, a, b);              \
  }
#define DT_FUNCTION_P(F, name)                                           \
  template <class... P>                                                  \
  requires internal::Parameters<fn::F, P...> DistTensor name(            \
      const DistTensor& a, const DistTensor& b, P... parameters) {       \
    return internal::binary(fn::index_of<fn::F>, a, b, {parameters...}); \
  }
DT_BINARY_FUNCTIONS(DT_FUNCTION, DT_FUNCTION_P)
#undef DT_FUNCTION
#undef DT_FUNCTION_P

// Calls the function with this name, such as "softplus". Throws Error if there
// is no such function, or if it takes another number of parameters.
DistTensor unary(std::string_view function, const DistTensor&,
                 internal::Numbers = {});
DistTensor binary(std::string_view function, const DistTensor& a,
                  const DistTensor& b, internal::Numbers = {});

// clamp() with only one bound. clamp(x, min) is the same as clamp_min(x, min).
DistTensor clamp_min(const DistTensor& x, Number min);
DistTensor clamp_max(const DistTensor& x, Number max);

// torch's other name of clamp().
inline DistTensor clip(const DistTensor& x, Number min, Number max) {
  return clamp(x, min, max);
}

// lerp() with a weight for each element.
DistTensor lerp(const DistTensor& a, const DistTensor& b,
                const DistTensor& weight);
// A copy, in memory of its own; differentiable.
DistTensor clone(const DistTensor&);

// condition ? a : b. Throws Error unless the condition is bool.
DistTensor where(const DistTensor& condition, const DistTensor& a,
                 const DistTensor& b);
DistTensor where(const DistTensor& condition, const DistTensor& a, Number b);
DistTensor where(const DistTensor& condition, Number a, const DistTensor& b);
// An f32, i64 or bool tensor, as the two numbers promote.
DistTensor where(const DistTensor& condition, Number a, Number b);
// Converts to a dtype. A partial sum is reduced first if the casts of its parts
// need not add up to its cast: from a float to an integer, or to a float type
// that lacks some of its values; from an integer to a float (except i32 to
// f64); and to bool or i8.
DistTensor cast(const DistTensor&, DType);

#define DT_OPERATOR(op, name)                                               \
  inline DistTensor operator op(const DistTensor& a, const DistTensor& b) { \
    return name(a, b);                                                      \
  }                                                                         \
  inline DistTensor operator op(const DistTensor& a, Number b) {            \
    return name(a, b);                                                      \
  }                                                                         \
  inline DistTensor operator op(Number a, const DistTensor& b) {            \
    return name(a, b);                                                      \
  }
DT_OPERATOR(+, add)
DT_OPERATOR(-, sub)
DT_OPERATOR(*, mul)
DT_OPERATOR(/, div)
DT_OPERATOR(%, remainder)  // with the divisor's sign, as in Python
DT_OPERATOR(&, bitwise_and)
DT_OPERATOR(|, bitwise_or)
DT_OPERATOR(^, bitwise_xor)
// Element by element, as in torch: x == y is a tensor of bools. Whether two
// handles share one tensor is x.same_as(y).
DT_OPERATOR(<, lt)
DT_OPERATOR(<=, le)
DT_OPERATOR(>, gt)
DT_OPERATOR(>=, ge)
DT_OPERATOR(==, eq)
DT_OPERATOR(!=, ne)
#undef DT_OPERATOR
inline DistTensor operator-(const DistTensor& a) { return neg(a); }
inline DistTensor operator~(const DistTensor& a) { return bitwise_not(a); }

}  // namespace dtensor
