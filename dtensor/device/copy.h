// SPDX-License-Identifier: Apache-2.0
// Copies and fills of strided boxes in CPU memory.
//
// Shapes and strides are spans, to which a Shape converts. Strides are in
// elements and may be negative; those of a source may also be 0. A box has at
// most kMaxLoops dimensions (device.h). A destination shares no memory with a
// source unless the function says that it may.
#pragma once
#include <cstdint>

#include "dtensor/device/device.h"
#include "dtensor/placement/dtype.h"
#include "dtensor/placement/shape.h"

namespace dtensor {

// dst = src. Returns the bytes copied, counted while they are copied.
int64_t copy_strided(int64_t item_size, Sizes shape, void* dst,
                     Sizes dst_strides, const void* src, Sizes src_strides);

// dst = src, converted as in PyTorch, except that in an integer type, a float
// outside its range becomes the nearest integer in range, and NaN becomes 0.
void cast_strided(Sizes shape, DType dst_dtype, void* dst, Sizes dst_strides,
                  DType src_dtype, const void* src, Sizes src_strides);

// dst = value, for n contiguous elements or for a box. The value is converted
// as by cast_strided(): infinities become the bounds of an integer type. But
// for bool, -infinity becomes false. So identity() can be written to any type.
void fill(DType, int64_t n, void* dst, double value);
void fill_strided(DType, Sizes shape, void* dst, Sizes dst_strides,
                  double value);

}  // namespace dtensor
