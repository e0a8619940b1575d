// Products of matrices.
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// What is done where c is written, p being the sums of products. REQUIRES, of
// all but kNone: one type of floats for all, no `accumulate`, and c as wide as
// its n says: no stride of 0.
struct Epilogue {
  enum Kind : uint8_t {
    kNone,      // c = p
    kBias,      // c = p + bias
    kGeluTanh,  // aux = p + bias, c = gelu_tanh(aux)
    kSumB,      // c = p, b_sum = the sum of b over k and what else is summed
    // Back through kGeluTanh: c = gelu_tanh'(aux) p, c_sum = the sum of that
    // over all but n.
    kGeluTanhBackward,
  };
  Kind kind = kNone;
  const void* bias = nullptr;  // [n]; kGeluTanh: may be null
  void* aux = nullptr;         // lies as c does; kGeluTanhBackward reads it
  void* b_sum = nullptr;       // [n]; b has no batch that c has
  void* c_sum = nullptr;       // [n], or null
};

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
  Epilogue epilogue;
};

class GemmKernels {
 public:
  virtual ~GemmKernels() = default;
  // a and b of type `in`, c of type `out`: equal, or f32 for bf16 and f16,
  // which sum in f32. All dtypes but bool.
  virtual void gemm(Stream, DType in, DType out, const Gemm&) const = 0;
  // The epilogue alone, of a c that holds the sums of products: what gemm()
  // does where its product has none.
  virtual void finish_gemm(Stream, DType, const Gemm&) const = 0;
  // Back through kGeluTanh: dx = gelu_tanh'(x) dy, and in the same pass the sum
  // of its rows, which may be null. dx [rows, n] is contiguous, and may be dy.
  virtual void gelu_tanh_backward(Stream, DType, int64_t rows, int64_t n,
                                  const void* x, int64_t x_stride,
                                  const void* dy, int64_t dy_stride, void* dx,
                                  void* sum) const = 0;
};

}  // namespace dtensor::kernels
