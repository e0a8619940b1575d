// SPDX-License-Identifier: Apache-2.0
// Conversion of one value to another type, for host loops and kernels.
#pragma once
#include <limits>
#include <type_traits>

#include "dtensor/device/values.h"
#include "dtensor/placement/dtype.h"

namespace dtensor {

// Converts x as Device::cast() does.
template <class D, class S>
DT_HD D convert(S x) {
  if constexpr (std::is_same_v<S, D>) {
    return x;
  } else if constexpr (portable::is_half<S>) {
    return convert<D>(static_cast<float>(x));
  } else if constexpr (portable::is_half<D>) {
    return D(static_cast<float>(x));
  } else if constexpr (std::is_same_v<D, bool>) {
    return x != S(0);
  } else if constexpr (std::is_floating_point_v<S> && std::is_integral_v<D>) {
    // kEnd = max() + 1 is a power of two, so S can represent it, unlike max()
    // in some cases. Values from -kEnd to below kEnd convert without overflow.
    constexpr S kEnd = static_cast<S>(
        static_cast<double>(std::numeric_limits<D>::max() / 2 + 1) * 2);
    if (!(x < kEnd)) return x == x ? std::numeric_limits<D>::max() : D(0);
    return x < -kEnd ? std::numeric_limits<D>::min() : static_cast<D>(x);
  } else {
    return static_cast<D>(x);
  }
}

// Converts `value` as Device::fill() does. For bool, -infinity (the identity of
// max) becomes false.
template <class T>
T fill_value(double value) {
  if constexpr (std::is_same_v<T, bool>)
    if (value == -std::numeric_limits<double>::infinity()) return false;
  return convert<T>(value);
}

}  // namespace dtensor
