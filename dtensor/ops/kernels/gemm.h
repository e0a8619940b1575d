// Products of matrices.
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// c[batch, m, n] = sum over k of a[batch, m, k] b[batch, k, n].
// Any strides; no operand is copied as long as one of its two matrix strides
// is 1. A batch dimension (up to 4) whose c stride is 0 is summed over, as k
// is.
struct Gemm {
  Shape batch;
  int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;
  Shape a_batch_strides;
  int64_t a_m = 0, a_k = 0;
  const void* b = nullptr;
  Shape b_batch_strides;
  int64_t b_k = 0, b_n = 0;
  void* c = nullptr;
  Shape c_batch_strides;
  int64_t c_m = 0, c_n = 0;
  bool accumulate = false;  // c += instead of c =
};

class GemmKernels {
 public:
  virtual ~GemmKernels() = default;
  // a and b of type `in`, c of type `out`: equal, or f32 for bf16 and f16,
  // which sum in f32. All dtypes but bool.
  virtual void gemm(Stream, DType in, DType out, const Gemm&) const = 0;
};

}  // namespace dtensor::kernels
