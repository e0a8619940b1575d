// Reductions of one tensor over some of its dimensions.
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

enum class ReduceKind : uint8_t { kSum, kMax, kMin, kProd };

// The type in which running sums are taken: f64 for floats, else i64.
constexpr DType scan_sum_of(DType t) {
  return is_float(t) ? DType::kF64 : DType::kI64;
}

class ReduceKernels {
 public:
  virtual ~ReduceKernels() = default;
  // Reduces the dimensions with a bit (1 << dim) in `dims`. out is
  // contiguous over the others. All dtypes, except the sum of bools; for bools,
  // max is "any", and min and prod are "all". Integer sums wrap around. An
  // empty sum is 0, max the lowest value (-inf), min the highest (+inf), and
  // prod 1. In max and min, a NaN wins.
  virtual void reduce(Stream, ReduceKind, DType, const Shape& shape,
                      const void* in, const Shape& strides, uint32_t dims,
                      void* out) const = 0;
  // Adds the sum of squares of n contiguous floats, taken in f64, to *sum
  // (f64).
  virtual void sum_squares(Stream, DType, int64_t n, const void* x,
                           void* sum) const = 0;
  // Running sums of the rows of [rows, n]. out = the row's carry plus the sum
  // of the elements up to each one (in reverse: from each one on). total = the
  // sum of the whole row. x has a row stride; everything else is contiguous.
  // carry and total [rows] have type scan_sum_of(dtype). carry, out and total
  // may be null.
  virtual void scan_rows(Stream, DType, int64_t rows, int64_t n, const void* x,
                         int64_t x_stride, bool reverse, const void* carry,
                         void* out, void* total) const = 0;
};

}  // namespace dtensor::kernels
