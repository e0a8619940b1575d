// SPDX-License-Identifier: Apache-2.0
// A GPU's operations on strided boxes.
#pragma once
#include <cstdint>
#include <span>

#include "dtensor/device/device.h"

namespace dtensor::portable {

// Each function does what device.h says of the function with the same name.
// reduce() writes the result to each of the `dsts`. There is at least one, and
// all have the same strides.
class Boxes {
 public:
  virtual ~Boxes() = default;
  virtual int64_t copy(Stream, int64_t item_size, Sizes shape, void* dst,
                       Sizes dst_strides, const void* src,
                       Sizes src_strides) const = 0;
  virtual void cast(Stream, Sizes shape, DType dst_type, void* dst,
                    Sizes dst_strides, DType src_type, const void* src,
                    Sizes src_strides) const = 0;
  virtual void fill(Stream, DType, Sizes shape, void* dst, Sizes dst_strides,
                    double value) const = 0;
  virtual int64_t reduce(Stream, ReduceOp, DType, Sizes shape,
                         std::span<char* const> dsts, Sizes dst_strides,
                         std::span<const Operand> srcs,
                         int64_t count) const = 0;
  // REQUIRES: a float type.
  virtual void divide(Stream, DType, int64_t n, void* dst, const void* a,
                      const void* b) const = 0;
};

const Boxes& cuda_boxes();  // nvcc compiles its definition

}  // namespace dtensor::portable
