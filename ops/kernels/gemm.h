// Products of matrices.
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// Additional work when c is written; p stands for the sum of products. REQUIRES
// for all kinds but kNone: a, b and c have one float type, `accumulate` is
// false, and c has no stride of 0.
struct Epilogue {
  enum Kind : uint8_t {
    kNone,      // c = p
    kBias,      // c = p + bias
    kGeluTanh,  // aux = p + bias, c = gelu_tanh(aux)
    kSumB,      // c = p; b_sum = the sum of b over k and the summed batches
    // Backward through kGeluTanh: c = gelu_tanh'(aux) p; c_sum = the sum of c
    // over all dimensions but n.
    kGeluTanhBackward,
  };
  Kind kind = kNone;
  const void* bias = nullptr;  // [n]; kGeluTanh: may be null
  void* aux = nullptr;         // laid out as c; kGeluTanhBackward reads it
  void* b_sum = nullptr;       // [n]; b must lack the batch dimensions of c
  void* c_sum = nullptr;       // [n], or null
};

// c[batch, m, n] = sum over k of a[batch, m, k] b[batch, k, n].
// Strides are arbitrary; an operand is not copied if one of its two matrix
// strides is 1. Up to 4 batch dimensions. A batch dimension with stride 0 in c
// is summed over, like k.
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
  Epilogue epilogue;
};

class GemmKernels {
 public:
  virtual ~GemmKernels() = default;
  // a and b have type `in`, and c has type `out`. The types are equal, or `out`
  // is f32 for half types, which are summed in f32. All dtypes but bool.
  virtual void gemm(Stream, DType in, DType out, const Gemm&) const = 0;
  // Applies only the epilogue to a c that holds the sums of products. Used if
  // gemm() was called without it.
  virtual void finish_gemm(Stream, DType, const Gemm&) const = 0;
  // Backward through kGeluTanh: dx = gelu_tanh'(x) dy, and in the same pass,
  // sum = the sum of dx over the rows (null to skip). dx [rows, n] is
  // contiguous, and may be dy.
  virtual void gelu_tanh_backward(Stream, DType, int64_t rows, int64_t n,
                                  const void* x, int64_t x_stride,
                                  const void* dy, int64_t dy_stride, void* dx,
                                  void* sum) const = 0;
};

}  // namespace dtensor::kernels
