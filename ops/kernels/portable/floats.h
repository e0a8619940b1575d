// SPDX-License-Identifier: Apache-2.0
// Calls of templates for a type that is known only at run time.
#pragma once
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "dtensor/placement/dtype.h"

namespace dtensor::kernels {

// Throws Error. A separate function because nvcc cannot compile error.h (fmt).
[[noreturn]] void no_kernel(std::string_view where, DType);

// Calls fn.template operator()<T>() for a float type; throws Error for others.
template <class Fn>
void visit_float(DType t, std::string_view where, Fn&& fn) {
  switch (t) {
    case DType::kF32:
      return fn.template operator()<float>();
    case DType::kF64:
      return fn.template operator()<double>();
    case DType::kBF16:
      return fn.template operator()<bf16>();
    case DType::kF16:
      return fn.template operator()<f16>();
    default:
      no_kernel(where, t);
  }
}

// As visit_float(), for every type but bool and i8.
template <class Fn>
void visit_numbers(DType t, std::string_view where, Fn&& fn) {
  if (t == DType::kBool) no_kernel(where, t);
  visit(t, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>) fn.template operator()<T>();
  });
}

// Calls fn.template operator()<I>() for an index type; throws Error for others.
template <class Fn>
void visit_ids(DType t, std::string_view where, Fn&& fn) {
  switch (t) {
    case DType::kI32:
      return fn.template operator()<int32_t>();
    case DType::kI64:
      return fn.template operator()<int64_t>();
    default:
      no_kernel(where, t);
  }
}

}  // namespace dtensor::kernels
