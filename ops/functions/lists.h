// SPDX-License-Identifier: Apache-2.0
// All functions, by family, and their indices, which kernels use.
#pragma once
#include "dtensor/ops/functions/activation.h"
#include "dtensor/ops/functions/arithmetic.h"
#include "dtensor/ops/functions/comparison.h"
#include "dtensor/ops/functions/exponential.h"
#include "dtensor/ops/functions/function.h"
#include "dtensor/ops/functions/rounding.h"
#include "dtensor/ops/functions/special.h"
#include "dtensor/ops/functions/trigonometric.h"

#undef DT_ELEMENTARY
#undef DT_INFIX

// Expands to F(Struct, name) for each function without parameters, and
// P(Struct, name) for each with parameters.
#define DT_UNARY_FUNCTIONS(F, P) \
  DT_ARITHMETIC_UNARY(F, P)      \
  DT_EXPONENTIAL_UNARY(F, P)     \
  DT_TRIGONOMETRIC_UNARY(F, P)   \
  DT_ACTIVATION_UNARY(F, P)      \
  DT_ROUNDING_UNARY(F, P)        \
  DT_COMPARISON_UNARY(F, P)      \
  DT_LOGICAL_UNARY(F, P)         \
  DT_SPECIAL_UNARY(F, P)
#define DT_BINARY_FUNCTIONS(F, P) \
  DT_ARITHMETIC_BINARY(F, P)      \
  DT_EXPONENTIAL_BINARY(F, P)     \
  DT_TRIGONOMETRIC_BINARY(F, P)   \
  DT_ACTIVATION_BINARY(F, P)      \
  DT_ROUNDING_BINARY(F, P)        \
  DT_COMPARISON_BINARY(F, P)      \
  DT_LOGICAL_BINARY(F, P)         \
  DT_SPECIAL_BINARY(F, P)

namespace dtensor::fn {

template <class... F>
struct FunctionList {
  static constexpr int size = sizeof...(F);
  static constexpr Function all[size] = {facts<F>()...};
};

namespace internal {
template <class First, class... F>
using Behind = FunctionList<F...>;
#define DT_ENTRY(F, name) , F
#define DT_INDEX(F, name) k##F,
enum Unary : int { DT_UNARY_FUNCTIONS(DT_INDEX, DT_INDEX) kNumUnary };
enum Binary : int { DT_BINARY_FUNCTIONS(DT_INDEX, DT_INDEX) kNumBinary };
}  // namespace internal

using UnaryFunctions =
    internal::Behind<void DT_UNARY_FUNCTIONS(DT_ENTRY, DT_ENTRY)>;
using BinaryFunctions =
    internal::Behind<void DT_BINARY_FUNCTIONS(DT_ENTRY, DT_ENTRY)>;
inline constexpr int kNumUnary = UnaryFunctions::size;
inline constexpr int kNumBinary = BinaryFunctions::size;

// The index of a function in its list.
template <class F>
inline constexpr int index_of = -1;
#undef DT_INDEX
#define DT_INDEX(F, name) \
  template <>             \
  inline constexpr int index_of<F> = internal::k##F;
DT_UNARY_FUNCTIONS(DT_INDEX, DT_INDEX)
DT_BINARY_FUNCTIONS(DT_INDEX, DT_INDEX)
#undef DT_INDEX
#undef DT_ENTRY

// REQUIRES: index is at least 0, and below kNumUnary or kNumBinary.
constexpr const Function& unary_function(int index) {
  return UnaryFunctions::all[index];
}
constexpr const Function& binary_function(int index) {
  return BinaryFunctions::all[index];
}

}  // namespace dtensor::fn
