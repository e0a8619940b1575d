// A plain number as an operand beside tensors: 2, 0.5 or true, which PyTorch
// calls a scalar. Its kind counts, and not its type: it turns integers into
// floats (0.5, and 2.0 too), or bools into integers, and nothing else.
#pragma once
#include <cstdint>
#include <type_traits>

#include "dtensor/placement/dtype.h"

namespace dtensor {

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
  DType dtype;  // of its kind: f32, i64 or bool
  bool exact;   // false for an integer that `value` had to round
};

}  // namespace dtensor
