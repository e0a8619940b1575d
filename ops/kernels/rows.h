// Softmax and statistics of the rows of [rows, n].
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

class RowKernels {
 public:
  virtual ~RowKernels() = default;
  // x has a row stride; y is contiguous. Floats. y may be x, and dx may be dy
  // or y, if both are contiguous. A row of only -inf gives NaN.
  virtual void softmax_rows(Stream, DType, int64_t rows, int64_t n,
                            const void* x, int64_t x_stride, void* y) const = 0;
  virtual void log_softmax_rows(Stream, DType, int64_t rows, int64_t n,
                                const void* x, int64_t x_stride,
                                void* y) const = 0;
  // dx = y (dy - sum(y dy)), where y is the softmax. All but dy is contiguous.
  virtual void softmax_backward_rows(Stream, DType, int64_t rows, int64_t n,
                                     const void* y, const void* dy,
                                     int64_t dy_stride, void* dx) const = 0;
  // dx = dy - exp(y) sum(dy), where y is the log-softmax.
  virtual void log_softmax_backward_rows(Stream, DType, int64_t rows, int64_t n,
                                         const void* y, const void* dy,
                                         int64_t dy_stride, void* dx) const = 0;
  // Softmax in steps, for rows that are split over ranks: statistics of the
  // local part, which the caller combines, and passes that apply them.
  // Statistics are `stat`, contiguous [rows]. n may be 0: then max is -inf and
  // sums are 0.
  //
  // The largest element and the sum of exp(x - max), in one pass. In a row of
  // only -inf each element counts as 1; as part of a larger whole row it
  // vanishes.
  virtual void row_max_sum(Stream, DType, int64_t rows, int64_t n,
                           const void* x, int64_t x_stride, void* max,
                           void* sum) const = 0;
  virtual void row_sum(Stream, DType, int64_t rows, int64_t n, const void* x,
                       int64_t x_stride, void* sum) const = 0;
  // y = exp(x - max) / sum.
  virtual void softmax_apply(Stream, DType, int64_t rows, int64_t n,
                             const void* x, int64_t x_stride, const void* max,
                             const void* sum, void* y) const = 0;
  // y = x - max - log(sum).
  virtual void log_softmax_apply(Stream, DType, int64_t rows, int64_t n,
                                 const void* x, int64_t x_stride,
                                 const void* max, const void* sum,
                                 void* y) const = 0;
  // sum(y dy).
  virtual void row_dot(Stream, DType, int64_t rows, int64_t n, const void* y,
                       int64_t y_stride, const void* dy, int64_t dy_stride,
                       void* dot) const = 0;
  // dx = y (dy - dot).
  virtual void softmax_backward_apply(Stream, DType, int64_t rows, int64_t n,
                                      const void* y, const void* dy,
                                      int64_t dy_stride, const void* dot,
                                      void* dx) const = 0;
  // dx = dy - exp(y) sum_dy.
  virtual void log_softmax_backward_apply(Stream, DType, int64_t rows,
                                          int64_t n, const void* y,
                                          const void* dy, int64_t dy_stride,
                                          const void* sum_dy,
                                          void* dx) const = 0;
};

}  // namespace dtensor::kernels
