// Layer norm and RMS norm, on [rows, n].
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// xhat = (x - mean) rstd;  y = xhat gamma + beta. `mean` is null for RMS norm,
// beta where there is none. gamma and beta are [n] of x's type; mean and rstd
// are `stat`, [rows]. Floats.
struct Norm {
  int64_t rows = 0, n = 0;
  const void* x = nullptr;
  int64_t x_stride = 0;
  const void* gamma = nullptr;
  const void* beta = nullptr;
  // norm_forward: x + residual, rounded to x's type, takes the place of x, and
  // is left in `sum`, [rows, n], which may be either of them where that is
  // contiguous. Null: x alone.
  const void* residual = nullptr;
  int64_t residual_stride = 0;
  void* sum = nullptr;
  // norm_backward, norm_backward_apply: the cotangent of that sum, which dx
  // then has in it, and may be where that is contiguous. Null: none.
  const void* dsum = nullptr;
  int64_t dsum_stride = 0;
};

class NormKernels {
 public:
  virtual ~NormKernels() = default;
  // Whole rows in one pass. rstd = 1 / sqrt(variance + eps), for RMS norm of
  // the mean square. Writes mean (null: RMS norm), rstd and the contiguous y.
  virtual void norm_forward(Stream, DType, const Norm&, double eps, void* mean,
                            void* rstd, void* y) const = 0;
  // dx from dy (contiguous, may be null to skip it), and dgamma, dbeta ([n] of
  // `stat`; null to skip): their sums over the rows. dx may be dy.
  virtual void norm_backward(Stream, DType, const Norm&, const void* mean,
                             const void* rstd, const void* dy,
                             int64_t dy_stride, void* dx, void* dgamma,
                             void* dbeta) const = 0;
  // The pieces, for split rows: row_sum and this, the sum of (x - mean)^2 (mean
  // null: of x^2), combined by the caller into mean and rstd; then the pass.
  virtual void row_centered_sumsq(Stream, DType, int64_t rows, int64_t n,
                                  const void* x, int64_t x_stride,
                                  const void* mean, void* sumsq) const = 0;
  virtual void norm_apply(Stream, DType, const Norm&, const void* mean,
                          const void* rstd, void* y) const = 0;
  // s1 = sum(dy gamma) and s2 = sum(dy gamma xhat) of each row; `stat`. RMS
  // norm has no use for s1: it is 0, and may be null.
  virtual void norm_backward_rows(Stream, DType, const Norm&, const void* mean,
                                  const void* rstd, const void* dy,
                                  int64_t dy_stride, void* s1,
                                  void* s2) const = 0;
  // dx = rstd (dy gamma - (s1 + xhat s2) inv_n) + dsum, without s1 for RMS norm
  // (null mean); inv_n is 1 / the whole row's length. dx may be dy.
  virtual void norm_backward_apply(Stream, DType, const Norm&, const void* mean,
                                   const void* rstd, const void* dy,
                                   int64_t dy_stride, const void* s1,
                                   const void* s2, double inv_n,
                                   void* dx) const = 0;
  // dgamma = sum over rows of dy xhat, dbeta = of dy. [n] of `stat`; null to
  // skip.
  virtual void norm_backward_params(Stream, DType, const Norm&,
                                    const void* mean, const void* rstd,
                                    const void* dy, int64_t dy_stride,
                                    void* dgamma, void* dbeta) const = 0;
};

}  // namespace dtensor::kernels
