// Copies, fills and reductions of strided boxes in CPU memory.
//
// Shapes and strides are spans (a Shape converts). Strides are in elements and
// may be negative; those of a source may also be 0. At most kMaxLoops
// dimensions. A destination shares no memory with a source unless the function
// says that it may.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "dtensor/device/device.h"
#include "dtensor/placement/dtype.h"
#include "dtensor/placement/layout.h"
#include "dtensor/placement/shape.h"

namespace dtensor {

// dst = src. Returns the bytes copied, counted row by row.
int64_t copy_strided(int64_t item_size, Sizes shape, void* dst,
                     Sizes dst_strides, const void* src, Sizes src_strides);

// dst = src, converted as in PyTorch, except that a float outside the range of
// an integer type becomes the nearest integer in range, and NaN becomes 0.
void cast_strided(Sizes shape, DType dst_dtype, void* dst, Sizes dst_strides,
                  DType src_dtype, const void* src, Sizes src_strides);

// dst = value, for n contiguous elements or for a box, converted as
// cast_strided() does, except that infinities become the bounds of an integer
// type (of bool: true and false), so that identity() can be written to any
// type.
void fill(DType, int64_t n, void* dst, double value);
void fill_strided(DType, Sizes shape, void* dst, Sizes dst_strides,
                  double value);

// The value that a reduction ignores: 0 for kSum, -infinity for kMax, ...
double identity(ReduceOp);

// Throws Error, headed by `where`, if the operation cannot reduce values of
// this type: sum and avg of bool, avg of integers, any and all of types other
// than bool, and kMean, which reduces (sum, count) pairs.
void check_reducible(ReduceOp, DType, std::string_view where);

// dst = srcs[0] op srcs[1] op ..., from left to right; kAvg divides by `count`
// at the end. f16 and bf16 are accumulated in f32 and rounded once. One of the
// sources may be dst itself (with the same strides). Without sources: the
// identity. Returns the bytes read from each source, counted row by row.
// REQUIRES: check_reducible().
int64_t reduce_strided(ReduceOp, DType, Sizes shape, void* dst,
                       Sizes dst_strides, std::span<const Operand> srcs,
                       int64_t count);

// Reduces n contiguous elements into every one of `dsts`, which may be among
// the sources. Each source is read once, in place.
int64_t reduce_into_all(ReduceOp, DType, int64_t n, std::span<char* const> dsts,
                        std::span<const char* const> srcs, int64_t count);

// Throws Error unless the type is a float type.
void check_divisible(DType);

// dst = a / b, for n contiguous elements; dst may be a. Throws Error unless the
// type is a float type.
void divide(DType, int64_t n, void* dst, const void* a, const void* b);

// dst = dst op src.
void combine_strided(ReduceOp, DType, Sizes shape, void* dst, Sizes dst_strides,
                     const void* src, Sizes src_strides);

}  // namespace dtensor
