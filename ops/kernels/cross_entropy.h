// SPDX-License-Identifier: Apache-2.0
// Cross entropy.
//
// The kernels take logits [rows, hi - lo] of a float type: columns [lo, hi) of
// a vocabulary. A rank with several ranges of columns calls them once for each.
// Targets are global columns, i32 or i64. Per-row statistics are [rows] of the
// type `stat` (kernel.h).
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// Writes, for each row, picked = the target's logit if [lo, hi) contains the
// target. Otherwise picked is 0, or unchanged with `accumulate`.
struct CePick {
  Matrix logits;
  DType target_type = DType::kI64;
  const void* targets = nullptr;
  int64_t lo = 0, hi = 0;
  bool accumulate = false;
  void* picked = nullptr;
};

// A target counts unless it is one of the `ignores` numbers from `ignored` on.
// ends[0] = the largest target that counts; ends[1] = ~t for the smallest such
// t (-t would overflow for the lowest integer). Both are i64, and the lowest
// i64 if no target counts.
struct CeRange {
  DType target_type = DType::kI64;
  int64_t n = 0;
  const void* targets = nullptr;
  int64_t ignored = 0, ignores = 0;
  int64_t* ends = nullptr;
};

// dlogits = scale * (softmax - (1 - smoothing) * [column = target] -
//                    smoothing / vocabulary)
// where softmax = exp(logit - max - log_sum), and log_sum is the log of the
// whole row's sum of exp(logit - max). max, log_sum and scale have one number
// per row. Rows with scale 0 (ignored ones) get zeros. dlogits may be the
// logits.
struct CeBackward {
  Matrix logits;
  const void* max = nullptr;
  const void* log_sum = nullptr;
  DType target_type = DType::kI64;
  const void* targets = nullptr;
  int64_t lo = 0, hi = 0;
  const void* scale = nullptr;
  double smoothing = 0;
  int64_t vocabulary = 0;  // global
  void* dlogits = nullptr;
  int64_t dlogits_stride = 0;
};

}  // namespace dtensor::kernels
