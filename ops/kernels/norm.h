// SPDX-License-Identifier: Apache-2.0
// Layer norm and RMS norm, on [rows, n].
#pragma once
#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// The operands of a norm: xhat = (x - mean) * rstd; y = xhat * gamma + beta.
// `mean` is null for RMS norm, and `beta` for a norm without it. gamma and beta
// are [n] of x's type; mean and rstd are [rows] of the type `stat` (kernel.h).
// Takes floats.
struct Norm {
  Matrix x;
  const void* gamma = nullptr;
  const void* beta = nullptr;
  const void* mean = nullptr;
  const void* rstd = nullptr;
  // Only for NormForward: if `residual` has data, x + residual, rounded to x's
  // type, is normalized instead of x, and stored in `sum` [rows, n],
  // contiguous. `sum` may be x or residual.
  Matrix residual = {};
  void* sum = nullptr;
  // For the gradients: the cotangent of y.
  Matrix dy = {};
  // For NormBackward and NormBackwardApply: the cotangent of `sum`. If it has
  // data, it is added to dx. dx may be dsum.
  Matrix dsum = {};
  // Whether sums over whole rows are those that docs/reproducible.md defines,
  // on the CPU.
  bool by_leaves = false;
};

// Normalizes whole rows. rstd = 1 / sqrt(variance + eps); RMS norm takes the
// mean square instead of the variance. Writes mean (null for RMS norm), rstd,
// and y, which is contiguous. Does not read the mean and rstd of `of`.
struct NormForward {
  Norm of;
  double eps = 0;
  void* mean = nullptr;
  void* rstd = nullptr;
  void* y = nullptr;
};

// Computes dx (contiguous; may be dy), and dgamma = sum(dy * xhat) and dbeta =
// sum(dy) over the rows, both [n] of type `stat`. Skips those that are null.
// With `exact`, dgamma and dbeta are of type exact (exact_sum.h); on the CPU,
// not for f64.
struct NormBackward {
  Norm of;
  bool exact = false;
  void* dx = nullptr;
  void* dgamma = nullptr;
  void* dbeta = nullptr;
};

// For rows that are split over ranks: sums (x - mean)^2 over this rank's part
// of each row, or x^2 if mean is null. The caller first computes `mean`, of the
// whole row, with RowSum. It then combines the ranks' sums into rstd, and calls
// NormApply.
struct RowCenteredSumSquares {
  Matrix x;
  const void* mean = nullptr;
  void* sum = nullptr;
};

struct NormApply {
  Norm of;
  void* y = nullptr;
};

// s1 = sum(dy * gamma) and s2 = sum(dy * gamma * xhat) of each row, in `stat`.
// RMS norm does not use s1: it becomes 0, and may be null.
struct NormBackwardSums {
  Norm of;
  void* s1 = nullptr;
  void* s2 = nullptr;
};

// dx = rstd * (dy * gamma - (s1 + xhat * s2) * inv_n) + dsum, without s1 for
// RMS norm (null mean). inv_n is 1 / the length of the whole row. dx may be dy.
// dgamma and dbeta come from a NormBackward with a null dx.
struct NormBackwardApply {
  Norm of;
  const void* s1 = nullptr;
  const void* s2 = nullptr;
  double inv_n = 0;
  void* dx = nullptr;
};

}  // namespace dtensor::kernels
