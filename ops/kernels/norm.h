// Layer norm and RMS norm, on [rows, n].
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// xhat = (x - mean) rstd; y = xhat gamma + beta. `mean` is null for RMS norm,
// and beta if there is none. gamma and beta are [n] of x's type; mean and rstd
// are [rows] of `stat`. Floats.
struct Norm {
  int64_t rows = 0, n = 0;
  const void* x = nullptr;
  int64_t x_stride = 0;
  const void* gamma = nullptr;
  const void* beta = nullptr;
  // For norm_forward(): x + residual, rounded to x's type, replaces x, and is
  // stored in `sum` [rows, n]. `sum` may be x or residual if that is
  // contiguous. Null: x alone.
  const void* residual = nullptr;
  int64_t residual_stride = 0;
  void* sum = nullptr;
  // For norm_backward() and norm_backward_apply(): the cotangent of that sum,
  // which is added to dx. dx may be dsum if that is contiguous. Null: none.
  const void* dsum = nullptr;
  int64_t dsum_stride = 0;
};

class NormKernels {
 public:
  virtual ~NormKernels() = default;
  // Whole rows, in one pass. rstd = 1 / sqrt(variance + eps), or of the mean
  // square for RMS norm. Writes mean (null for RMS norm), rstd, and y, which is
  // contiguous.
  virtual void norm_forward(Stream, DType, const Norm&, double eps, void* mean,
                            void* rstd, void* y) const = 0;
  // Computes dx, contiguous (null to skip; it may be dy), and the sums over the
  // rows dgamma and dbeta, [n] of `stat` (null to skip).
  virtual void norm_backward(Stream, DType, const Norm&, const void* mean,
                             const void* rstd, const void* dy,
                             int64_t dy_stride, void* dx, void* dgamma,
                             void* dbeta) const = 0;
  // The steps for split rows. The caller combines row_sum() and this, the sum
  // of (x - mean)^2 (of x^2 if mean is null), into mean and rstd; then
  // norm_apply().
  virtual void row_centered_sumsq(Stream, DType, int64_t rows, int64_t n,
                                  const void* x, int64_t x_stride,
                                  const void* mean, void* sumsq) const = 0;
  virtual void norm_apply(Stream, DType, const Norm&, const void* mean,
                          const void* rstd, void* y) const = 0;
  // s1 = sum(dy gamma) and s2 = sum(dy gamma xhat) of each row, in `stat`. RMS
  // norm does not use s1: it is set to 0, and may be null.
  virtual void norm_backward_rows(Stream, DType, const Norm&, const void* mean,
                                  const void* rstd, const void* dy,
                                  int64_t dy_stride, void* s1,
                                  void* s2) const = 0;
  // dx = rstd (dy gamma - (s1 + xhat s2) inv_n) + dsum, without s1 for RMS norm
  // (null mean). inv_n is 1 / the length of the whole row. dx may be dy.
  virtual void norm_backward_apply(Stream, DType, const Norm&, const void* mean,
                                   const void* rstd, const void* dy,
                                   int64_t dy_stride, const void* s1,
                                   const void* s2, double inv_n,
                                   void* dx) const = 0;
  // dgamma = the sum over the rows of dy xhat, and dbeta that of dy; [n] of
  // `stat`, null to skip.
  virtual void norm_backward_params(Stream, DType, const Norm&,
                                    const void* mean, const void* rstd,
                                    const void* dy, int64_t dy_stride,
                                    void* dgamma, void* dbeta) const = 0;
};

}  // namespace dtensor::kernels
