// The kernels again, in the plainest way and in f64 alone: what their tests
// compare with. Same structs and meanings as in kernels.h, with pointers to
// double (bool masks and targets apart).
#pragma once
#include <cstdint>

#include "dtensor/ops/functions/lists.h"
#include "dtensor/ops/kernels/kernels.h"

namespace dtensor::kernels::reference {

void gemm(const Gemm&);
// By torch's formula; *slope is its derivative.
double gelu_tanh(double x, double* slope = nullptr);

// The text of fn::UnaryFunctions and fn::BinaryFunctions, by index, on one f64,
// i64 or bool as `t` has it: what registers, types and strides must not change.
// (That the text is right is pointwise_test's matter.) The derivatives are left
// to finite differences.
double unary(int index, DType t, double x, const double* params);
double binary(int index, DType t, double a, double b, const double* params);
// Is there one?
bool has_value(const fn::Function&, DType t);

void reduce(ReduceKind, const Shape& shape, const double* in,
            const Shape& strides, uint32_t dims, double* out);

void softmax(int64_t rows, int64_t n, const double* x, double* y);
void log_softmax(int64_t rows, int64_t n, const double* x, double* y);
void softmax_backward(int64_t rows, int64_t n, const double* y,
                      const double* dy, double* dx);
void log_softmax_backward(int64_t rows, int64_t n, const double* y,
                          const double* dy, double* dx);

// gamma and beta may be null; `rms` for RMS norm. Contiguous rows.
void norm(int64_t rows, int64_t n, const double* x, const double* gamma,
          const double* beta, bool rms, double eps, double* mean, double* rstd,
          double* y);
void norm_backward(int64_t rows, int64_t n, const double* x,
                   const double* gamma, bool rms, const double* mean,
                   const double* rstd, const double* dy, double* dx,
                   double* dgamma, double* dbeta);

// The mean over rows with a target >= 0 of the smoothed loss is not taken here:
// loss[r] = lse - (1 - smoothing) x[target] - smoothing mean(x), and its
// gradient times scale[r].
void cross_entropy(int64_t rows, int64_t n, const double* x,
                   const int64_t* targets, double smoothing,
                   const double* scale, double* loss, double* dx);

// As kernels::attention, with whole matrices of scores; the gradient's out and
// lse are not read.
void attention(const Attention&, double* out, const int64_t out_strides[4],
               double* lse);
void attention_backward(const Attention&, const AttentionGrad&);

void rotary(const Rotary&);

// Of one part, all of f64, without a master or rates.
void adamw(const AdamW&, const OptimPart&);
void sgd(const Sgd&, const OptimPart&);

// The element at `index` for f32 (`wide`: for f64).
double random(Distribution, bool wide, uint64_t seed, uint64_t stream_id,
              uint64_t index, double p0, double p1);

}  // namespace dtensor::kernels::reference
