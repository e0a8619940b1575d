// SPDX-License-Identifier: Apache-2.0
// Tensors as plain arrays of numbers, for tests to compute with and compare.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/placement/dtype.h"
#include "dtensor/placement/shape.h"
#include "dtensor/tensor.h"

namespace dtensor::testing {

// A tensor's values in row-major order. Exact, except for integers beyond 2^53.
struct Array {
  Shape shape;
  std::vector<double> v;
  DType dtype = DType::kF64;

  double& at(int64_t i) { return v[static_cast<size_t>(i)]; }
  double at(int64_t i) const { return v[static_cast<size_t>(i)]; }
};

inline Array zeros_like(const Shape& shape, DType t = DType::kF64) {
  return {shape, std::vector<double>(static_cast<size_t>(numel(shape))), t};
}

// A tensor with these values in type t, on the calling rank's device.
inline Tensor tensor_of(const Array& a, DType t) {
  return visit_stored(t, [&]<class T>() {
    // Not a std::vector: vector<bool> has no data().
    const auto values = std::make_unique<T[]>(a.v.size() + 1);
    for (size_t i = 0; i < a.v.size(); ++i)
      if constexpr (is_half<T>)
        values[i] = T(static_cast<float>(a.v[i]));
      else if constexpr (std::is_floating_point_v<T>)
        values[i] = static_cast<T>(a.v[i]);
      else  // values beyond the range of T wrap around
        values[i] = static_cast<T>(static_cast<int64_t>(a.v[i]));
    return Tensor::from(a.shape, values.get());
  });
}
inline Tensor tensor_of(const Array& a) { return tensor_of(a, a.dtype); }

inline Array array_of(const Tensor& t) {
  return {t.shape(), t.to_doubles(), t.dtype()};
}

// The values of a tensor, in row-major order.
inline std::vector<double> values(const Tensor& t) { return t.to_doubles(); }
// The values of the whole tensor. Every rank of its mesh calls this.
inline std::vector<double> values(const DistTensor& x) {
  return x.full().to_doubles();
}

}  // namespace dtensor::testing
