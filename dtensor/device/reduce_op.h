// SPDX-License-Identifier: Apache-2.0
// The operation of a ReduceOp on two values, for host loops and kernels.
#pragma once
#include <type_traits>

#include "dtensor/device/values.h"
#include "dtensor/placement/layout.h"

namespace dtensor::reduce_op {

// The unsigned type of an integer type A, or A itself for other types and bool.
// Integers are added and multiplied as unsigned, because signed overflow is
// undefined. The result has the bits of a signed sum or product that wraps
// around.
template <class A>
struct unsigned_of {
  using type = A;
};
template <class A>
requires(std::is_integral_v<A> &&
         !std::is_same_v<A, bool>) struct unsigned_of<A> {
  using type = std::make_unsigned_t<A>;
};

struct Sum {
  template <class A>
  DT_HD static A apply(A a, A b) {
    using U = typename unsigned_of<A>::type;
    return static_cast<A>(static_cast<U>(a) + static_cast<U>(b));
  }
};
struct Prod {
  template <class A>
  DT_HD static A apply(A a, A b) {
    using U = typename unsigned_of<A>::type;
    return static_cast<A>(static_cast<U>(a) * static_cast<U>(b));
  }
};
// If either value is NaN, so is the result of Max or Min, as in PyTorch.
struct Max {
  template <class A>
  DT_HD static A apply(A a, A b) {
    return a > b || a != a ? a : b;
  }
};
struct Min {
  template <class A>
  DT_HD static A apply(A a, A b) {
    return a < b || a != a ? a : b;
  }
};

// Calls fn.template operator()<Op>() with the Op above that `op` needs. For
// bool, `any` is max and `all` is min.
template <class Fn>
void visit(ReduceOp op, Fn&& fn) {
  switch (op) {
    case ReduceOp::kMax:
    case ReduceOp::kAny:
      return fn.template operator()<Max>();
    case ReduceOp::kMin:
    case ReduceOp::kAll:
      return fn.template operator()<Min>();
    case ReduceOp::kProd:
      return fn.template operator()<Prod>();
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
    case ReduceOp::kMean:
    case ReduceOp::kExactSum:
      break;
  }
  return fn.template operator()<Sum>();
}

}  // namespace dtensor::reduce_op
