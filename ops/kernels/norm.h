// SPDX-License-Identifier: Apache-2.0
// Layer norm and RMS norm, on [rows, n].
#pragma once
#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// The operands. xhat = (x - mean) rstd; y = xhat gamma + beta. `mean` is null
// for RMS norm, and beta if there is none. gamma and beta are [n] of x's type;
// mean and rstd are [rows] of `stat`. Floats.
struct Norm {
  Matrix x;
  const void* gamma = nullptr;
  const void* beta = nullptr;
  const void* mean = nullptr;
  const void* rstd = nullptr;
  // For NormForward: x + residual, rounded to x's type, replaces x, and is
  // stored in `sum` [rows, n], contiguous. `sum` may be x or residual. Without
  // data: x alone.
  Matrix residual = {};
  void* sum = nullptr;
  // For the gradients: the cotangent of y.
  Matrix dy = {};
  // For NormBackward and NormBackwardApply: the cotangent of that sum, which is
  // added to dx. dx may be dsum. Without data: none.
  Matrix dsum = {};
};

// Whole rows, in one pass. rstd = 1 / sqrt(variance + eps), or of the mean
// square for RMS norm. Writes mean (null for RMS norm), rstd, and y, which is
// contiguous. It does not read the mean and rstd of `of`.
struct NormForward {
  Norm of;
  double eps = 0;
  void* mean = nullptr;
  void* rstd = nullptr;
  void* y = nullptr;
};

// Computes dx, contiguous (null to skip; it may be dy), and the sums over the
// rows dgamma, of dy xhat, and dbeta, of dy: [n] of `stat` (null to skip).
struct NormBackward {
  Norm of;
  void* dx = nullptr;
  void* dgamma = nullptr;
  void* dbeta = nullptr;
};

// The steps for split rows. The caller combines RowSum and this, the sum of (x
// - mean)^2 (of x^2 if mean is null), into mean and rstd; then NormApply.
struct RowCenteredSumSquares {
  Matrix x;
  const void* mean = nullptr;
  void* sum = nullptr;
};

struct NormApply {
  Norm of;
  void* y = nullptr;
};

// s1 = sum(dy gamma) and s2 = sum(dy gamma xhat) of each row, in `stat`. RMS
// norm does not use s1: it is set to 0, and may be null.
struct NormBackwardSums {
  Norm of;
  void* s1 = nullptr;
  void* s2 = nullptr;
};

// dx = rstd (dy gamma - (s1 + xhat s2) inv_n) + dsum, without s1 for RMS norm
// (null mean). inv_n is 1 / the length of the whole row. dx may be dy. The sums
// over the rows are those of a NormBackward without dx.
struct NormBackwardApply {
  Norm of;
  const void* s1 = nullptr;
  const void* s2 = nullptr;
  double inv_n = 0;
  void* dx = nullptr;
};

}  // namespace dtensor::kernels
