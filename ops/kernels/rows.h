// SPDX-License-Identifier: Apache-2.0
// Softmax and statistics of rows of floats.
//
// A softmax is also computed in steps, for rows that are split over ranks:
// kernels for the statistics of the local part, which the caller combines, and
// kernels that apply them. Statistics are of type `stat`, contiguous [rows]. n
// may be 0: then max is -inf and sums are 0. Outputs are contiguous in the
// shape of x, or of dy, whose rows may lie side by side (Matrix::inner).
#pragma once
#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// y = exp(x - max) / sum, where max is the row's largest element and sum its
// sum of exp(x - max). With `log`, y = x - max - log(sum). y is contiguous, and
// may be x. A row of only -inf gives NaN.
struct Softmax {
  Matrix x;
  // The statistics of the whole rows; both null to compute them from x.
  const void* max = nullptr;
  const void* sum = nullptr;
  void* y = nullptr;
  bool log = false;
  // Whether sums that it computes are those of docs/reproducible.md, on the
  // CPU.
  bool by_leaves = false;
};

// dx = y * (dy - sum), where y is the softmax and sum is sum(y * dy). With
// `log`, dx = dy - exp(y) * sum, where y is the log-softmax and sum is sum(dy).
// y and dx are contiguous; dx may be y or dy.
struct SoftmaxBackward {
  Matrix dy;
  const void* y = nullptr;
  const void* sum = nullptr;  // of the whole rows; null to compute it
  void* dx = nullptr;
  bool log = false;
  bool by_leaves = false;  // as in Softmax
};

// The largest element of each row, and the sum of exp(x - max). In a row of
// only -inf each element adds 1 to the sum, which vanishes when the caller
// merges the row into one with a larger max.
struct RowMaxSum {
  Matrix x;
  void* max = nullptr;
  void* sum = nullptr;
};

struct RowSum {
  Matrix x;
  void* sum = nullptr;
};

// dot = sum(y * dy) of each row.
struct RowDot {
  Matrix y, dy;
  void* dot = nullptr;
};

}  // namespace dtensor::kernels
