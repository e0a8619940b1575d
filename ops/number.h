// A plain number as an operand beside tensors, such as 2, 0.5 or true (a scalar
// in PyTorch). Only its kind affects the result's dtype: a float (0.5, and 2.0)
// turns integers and bools into floats, and an integer turns bools into
// integers.
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
  DType dtype;  // stands for its kind: f32, i64 or bool
  bool exact;   // false if `value` is an integer that had to be rounded
};

}  // namespace dtensor
