// Moving, filling and combining strided boxes of CPU memory.
//
// Shapes and strides are spans (a Shape converts); strides are in elements,
// may be negative, and of a source may be 0. At most kMaxLoops dimensions. A
// destination shares no memory with a source unless it says so.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "dtensor/device/device.h"
#include "dtensor/placement/dtype.h"
#include "dtensor/placement/layout.h"
#include "dtensor/placement/shape.h"

namespace dtensor {

// dst = src. Returns the bytes copied, added up row by row.
int64_t copy_strided(int64_t item_size, Sizes shape, void* dst,
                     Sizes dst_strides, const void* src, Sizes src_strides);

// dst = src, converted as by PyTorch; a float that does not fit into an integer
// becomes the nearest one that does, NaN becomes 0.
void cast_strided(Sizes shape, DType dst_dtype, void* dst, Sizes dst_strides,
                  DType src_dtype, const void* src, Sizes src_strides);

// n contiguous elements, converted from double as cast_strided() does; the
// infinities give the bounds of an integer type (of bool: true and false), so
// that identity() can be written to any.
void fill(DType, int64_t n, void* dst, double value);
void fill_strided(DType, Sizes shape, void* dst, Sizes dst_strides,
                  double value);

// What changes nothing: 0 for kSum, the infinity or the bound for kMax, ...
double identity(ReduceOp);

// Throws Error, headed by `where`, when values of this type are not reduced
// so: sums of bool, averages of integers, any of what is not bool, and kMean,
// which is a sum of tuples.
void check_reducible(ReduceOp, DType, std::string_view where);

// dst = srcs[0] op srcs[1] op ..., from the left; kAvg divides by `count` in
// the end. Halves are accumulated in f32 and rounded once. One of the sources
// may be dst itself (with the same strides). Without sources: the identity.
// Returns the bytes read of each source, added up row by row.
// REQUIRES: check_reducible().
int64_t reduce_strided(ReduceOp, DType, Sizes shape, void* dst,
                       Sizes dst_strides, std::span<const Operand> srcs,
                       int64_t count);

// The same of n contiguous elements, into every one of `dsts`, which may be
// among the sources. Each source is read once, where it lies.
int64_t reduce_into_all(ReduceOp, DType, int64_t n, std::span<char* const> dsts,
                        std::span<const char* const> srcs, int64_t count);

// Throws Error for what is no float.
void check_divisible(DType);

// dst = a / b, of n contiguous elements; dst may be a. Throws Error as above.
void divide(DType, int64_t n, void* dst, const void* a, const void* b);

// dst = dst op src.
void combine_strided(ReduceOp, DType, Sizes shape, void* dst, Sizes dst_strides,
                     const void* src, Sizes src_strides);

}  // namespace dtensor
