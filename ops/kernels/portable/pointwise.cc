// SPDX-License-Identifier: Apache-2.0
// Element-wise functions: the dispatch to their kernels.
#include "dtensor/ops/kernels/pointwise.h"

#include <utility>

#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/pointwise_launch.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace pointwise {

template <>
portable::Walk<2> walk_of<1>(const Pointwise& a) {
  return {a.shape, {contiguous_strides(a.shape), a.strides[0]}};
}
template <>
portable::Walk<3> walk_of<2>(const Pointwise& a) {
  return {a.shape, {contiguous_strides(a.shape), a.strides[0], a.strides[1]}};
}
template <>
portable::Walk<4> walk_of<3>(const Pointwise& a) {
  return {
      a.shape,
      {contiguous_strides(a.shape), a.strides[0], a.strides[1], a.strides[2]}};
}

namespace {

// A bool is stored as a byte.
template <class S>
using stored_t = std::conditional_t<std::is_same_v<S, bool>, uint8_t, S>;

template <class M>
Launch unary_of(int index, int order) {
  if (order == 0) return unary_launch<M, 0>(index);
  if constexpr (portable::is_floating<M>)
    return order == 1   ? unary_launch<M, 1>(index)
           : order == 2 ? unary_launch<M, 2>(index)
                        : unary_launch<M, 3>(index);
  return nullptr;
}

template <class M>
Launch binary_of(int index, fn::By by) {
  using fn::By;
  if (by == By::kNone) return binary_launch<M, By::kNone>(index);
  Launch found = nullptr;
  if constexpr (portable::is_floating<M>)
    [&]<int... k>(std::integer_sequence<int, k...>) {
      (void)((by == By{k} && (found = binary_launch<M, By{k}>(index), true)) ||
             ...);
    }
  (std::make_integer_sequence<int, fn::kNumBy>());
  return found;
}

template <class S>
void mul_add(Stream s, const Pointwise& a) {
  using portable::widened;
  portable::map(
      s, walk_of<3>(a), static_cast<S*>(a.out),
      DT_BODY(S x, S y, S z) {
        return portable::rounded<S>(widened(x) + widened(y) * widened(z));
      },
      static_cast<const S*>(a.in[0]), static_cast<const S*>(a.in[1]),
      static_cast<const S*>(a.in[2]));
}

}  // namespace
}  // namespace pointwise

DT_KERNEL(Unary)
void run(Stream s, const Unary& a) {
  const fn::Function& f = checked_unary(a.index, a.order);
  const auto launch = visit(a.of.type, [&]<class S>() {
    return pointwise::unary_of<pointwise::stored_t<S>>(a.index, a.order);
  });
  if (!launch) no_kernel(f, a.order, a.of.type);
  launch(s, a.params.data(), a.of);
}

DT_KERNEL(Binary)
void run(Stream s, const Binary& a) {
  const fn::Function& f = checked_binary(a.index);
  const auto launch = visit(a.of.type, [&]<class S>() {
    return pointwise::binary_of<pointwise::stored_t<S>>(a.index, a.by);
  });
  if (!launch) no_kernel(f, fn::order_of(a.by), a.of.type);
  launch(s, a.params.data(), a.of);
}

DT_KERNEL(MulAdd)
void run(Stream s, const MulAdd& a) {
  visit_float(a.of.type, "addcmul",
              [&]<class S>() { pointwise::mul_add<S>(s, a.of); });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
