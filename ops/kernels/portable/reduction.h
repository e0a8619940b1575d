// SPDX-License-Identifier: Apache-2.0
// The operations of reductions and scans, and the types that they take.
#pragma once
#include <cstdint>
#include <type_traits>

#include "dtensor/ops/kernels/portable/executor.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {

using portable::Max;
using portable::Min;
using portable::Sum;
struct Prod {
  template <class A>
  DT_HD A operator()(const A& a, const A& b) const {
    return a * b;
  }
};

// The type in which elements of type S are reduced: f64 for sums and products
// of floats (but the CPU first reduces short pieces in the compute type),
// unsigned for those of integers, which wrap around, and the compute type for
// extrema. A bool is a byte 0 or 1, but a word on GPUs, whose lanes exchange
// words.
template <class Op, class S>
constexpr auto accumulator() {
  constexpr bool kArithmetic =
      std::is_same_v<Op, Sum> || std::is_same_v<Op, Prod>;
  if constexpr (std::is_same_v<S, uint8_t>)
    return std::conditional_t<portable::kManyPasses, uint8_t, uint32_t>{};
  else if constexpr (!kArithmetic)
    return portable::compute_t<S>{};
  else if constexpr (portable::is_floating<S>)
    return double{};
  else
    return std::make_unsigned_t<S>{};
}
template <class Op, class S>
using acc_t = decltype(accumulator<Op, S>());

template <class Op, class A>
DT_HD constexpr A identity() {
  if constexpr (std::is_same_v<Op, Max>)
    return portable::lowest<A>();
  else if constexpr (std::is_same_v<Op, Min>)
    return portable::highest<A>();
  else
    return A(std::is_same_v<Op, Prod>);
}

// Itself and Square convert an element to the type A of the reduction; result()
// converts a result to the storage type S.
struct Itself {
  template <class A, class S>
  DT_HD static A get(S x) {
    if constexpr (std::is_same_v<S, uint8_t>)
      return A(x != 0);
    else
      return static_cast<A>(portable::widened(x));
  }
};
struct Square {
  template <class A, class S>
  DT_HD static A get(S x) {
    return Itself::get<A>(x) * Itself::get<A>(x);
  }
};
template <class S, class A>
DT_HD S result(A a) {
  return portable::rounded<S>(static_cast<portable::compute_t<S>>(a));
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
