// SPDX-License-Identifier: Apache-2.0
// Code that the tables of element-wise kernels of all devices share. Private to
// ops/kernels.
#pragma once
#include <cstdint>
#include <type_traits>

#include "dtensor/ops/functions/lists.h"
#include "dtensor/placement/dtype.h"

namespace dtensor::kernels {

// Whether F, or its derivative of this order, has a kernel that computes in T:
// float or double, int32_t, int64_t or uint8_t (a bool). Derivatives of linear
// and affine functions have no kernel: other operators make their gradients.
template <class F, class T, int order>
constexpr bool has_kernel() {
  constexpr fn::Function f = fn::facts<F>();
  if (order > 0 && (!f.differentiable() || f.linear() || f.affine()))
    return false;
  if (std::is_floating_point_v<T>) return fn::takes_floats(f.takes);
  if (order > 0) return false;
  return sizeof(T) == 1 ? fn::takes_bools(f.takes)
                        : fn::takes_integers(f.takes);
}

// The type in which a function's `value` gets an element of type T.
template <class T>
using scalar_t = std::conditional_t<std::is_floating_point_v<T>, T, fn::Int<T>>;

// Converts a function's result to its storage type; a bool becomes a byte.
template <class T, class V>
DT_HD inline auto stored(V result) {
  if constexpr (std::is_same_v<V, bool>)
    return static_cast<uint8_t>(result);
  else if constexpr (std::is_floating_point_v<T>)
    return result;
  else if constexpr (sizeof(T) == 1)
    return static_cast<uint8_t>(result.v != 0);
  else
    return result.v;
}

// Return the facts of the function at `index`. Throw Error if there is no such
// function, or no such order of derivative.
const fn::Function& checked_unary(int index, int order);
const fn::Function& checked_binary(int index);
// Throws Error: the function has no kernel of this order for this type.
[[noreturn]] void no_kernel(const fn::Function&, int order, DType);

}  // namespace dtensor::kernels
