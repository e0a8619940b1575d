// Cross entropy.
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// dlogits = scale (softmax - (1 - smoothing) [target] - smoothing / vocabulary)
// where softmax = exp(logit - max - log_sum), log_sum the log of the whole
// row's sum of exp(logit - max). Rows whose scale is 0 (ignored ones) get
// zeros. dlogits has a row stride, and may be the logits.
struct CeBackward {
  int64_t rows = 0;
  const void* logits = nullptr;
  int64_t stride = 0;
  const void* max = nullptr;
  const void* log_sum = nullptr;
  const void* targets = nullptr;
  int64_t lo = 0, hi = 0;
  const void* scale = nullptr;
  double smoothing = 0;
  int64_t vocabulary = 0;  // global
  void* dlogits = nullptr;
  int64_t dlogits_stride = 0;
};

class CrossEntropyKernels {
 public:
  virtual ~CrossEntropyKernels() = default;
  // On logits [rows, hi - lo], the columns lo..hi of a vocabulary. A rank whose
  // columns are several ranges calls once for each. Targets are i32 or i64
  // global columns. Statistics are `stat`, [rows]. Floats.
  //
  // picked = the target's logit, where the range holds it. Elsewhere 0, or what
  // it was with `accumulate`.
  virtual void ce_pick(Stream, DType, DType target_type, int64_t rows,
                       const void* logits, int64_t stride, const void* targets,
                       int64_t lo, int64_t hi, bool accumulate,
                       void* picked) const = 0;
  // ends[0] = the largest target that is not `ignored`, ends[1] = ~ of the
  // smallest (as -t of the smallest integer is not): i64, their lowest value
  // where there is none.
  virtual void ce_range(Stream, DType target_type, int64_t n,
                        const void* targets, int64_t ignored,
                        int64_t* ends) const = 0;
  virtual void ce_backward(Stream, DType, DType target_type,
                           const CeBackward&) const = 0;
};

}  // namespace dtensor::kernels
