// SPDX-License-Identifier: Apache-2.0
// Reductions of strided boxes in CPU memory: the local part of an all-reduce or
// a reduce-scatter. For shapes and strides, see copy.h.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "dtensor/device/device.h"
#include "dtensor/placement/dtype.h"
#include "dtensor/placement/layout.h"
#include "dtensor/placement/shape.h"

namespace dtensor {

// The value that changes no result of a reduction: 0 for kSum, -infinity for
// kMax, ...
double identity(ReduceOp);

// Throws an Error that begins with `where` if the operation cannot reduce
// values of this type: sum and avg of bool, avg of integers, any and all of
// types other than bool, any operation on i8 (then "dtype" replaces `where`),
// and kMean, which reduces (sum, count) pairs.
void check_reducible(ReduceOp, DType, std::string_view where);

// dst = srcs[0] op srcs[1] op ..., from left to right; kAvg divides by `count`
// at the end. f16 and bf16 are accumulated in f32 and rounded once. One of the
// sources may be dst itself (with the same strides). Without sources, dst is
// filled with identity(). Returns the bytes read from each source, counted
// while they are read. REQUIRES: check_reducible() accepts the operation.
int64_t reduce_strided(ReduceOp, DType, Sizes shape, void* dst,
                       Sizes dst_strides, std::span<const Operand> srcs,
                       int64_t count);

// Like reduce_strided(), for n contiguous elements and at least one source.
// Writes the result to each of `dsts`, which may be among the sources. Reads
// each source only once. Returns the bytes read from each source.
int64_t reduce_into_all(ReduceOp, DType, int64_t n, std::span<char* const> dsts,
                        std::span<const char* const> srcs, int64_t count);

// Throws Error unless the type is a float type.
void check_divisible(DType);

// dst = a / b, for n contiguous elements; dst may be a. Throws Error unless the
// type is a float type.
void divide(DType, int64_t n, void* dst, const void* a, const void* b);

}  // namespace dtensor
