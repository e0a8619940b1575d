// SPDX-License-Identifier: Apache-2.0
// Plain reference implementations in f64, which tests compare kernels with. The
// structs have the same meaning as for kernels, but all pointers are to double,
// except for bool masks and targets.
#pragma once
#include <cstdint>

#include "dtensor/ops/functions/lists.h"
#include "dtensor/placement/dtype.h"
#include "dtensor/placement/shape.h"

namespace dtensor::kernels {
struct AdamW;
struct AttentionBackward;
struct AttentionForward;
enum class Distribution : uint8_t;
struct Gemm;
struct OptimPart;
enum class ReduceKind : uint8_t;
struct Rotary;
struct Sgd;
}  // namespace dtensor::kernels

namespace dtensor::kernels::reference {

void gemm(const Gemm&);
double gelu_tanh(double x);  // by torch's formula

// Evaluates the functions of fn::UnaryFunctions and fn::BinaryFunctions, by
// index, for one f64, i64 or bool (according to `t`). Kernels in vector
// registers, with strides and storage types, must give the same.
// (pointwise_test checks that the functions themselves are right, and finite
// differences check derivatives.)
double unary(int index, DType t, double x, const double* params);
double binary(int index, DType t, double a, double b, const double* params);
// Whether a function has a value for this type.
bool has_value(const fn::Function&, DType t);

void reduce(ReduceKind, const Shape& shape, const double* in,
            const Shape& strides, uint32_t dims, double* out);

void softmax(int64_t rows, int64_t n, const double* x, double* y);
void log_softmax(int64_t rows, int64_t n, const double* x, double* y);
void softmax_backward(int64_t rows, int64_t n, const double* y,
                      const double* dy, double* dx);
void log_softmax_backward(int64_t rows, int64_t n, const double* y,
                          const double* dy, double* dx);

// gamma and beta may be null. `rms` selects RMS norm. Rows are contiguous.
void norm(int64_t rows, int64_t n, const double* x, const double* gamma,
          const double* beta, bool rms, double eps, double* mean, double* rstd,
          double* y);
void norm_backward(int64_t rows, int64_t n, const double* x,
                   const double* gamma, bool rms, const double* mean,
                   const double* rstd, const double* dy, double* dx,
                   double* dgamma, double* dbeta);

// For a row x with a target >= 0, loss[r] = log(sum(exp(x))) - (1 - smoothing)
// * x[target] - smoothing * mean(x), and dx is the gradient of loss[r], times
// scale[r]. Does not reduce over rows.
void cross_entropy(int64_t rows, int64_t n, const double* x,
                   const int64_t* targets, double smoothing,
                   const double* scale, double* loss, double* dx);

// Compute the same as the kernels, but with whole matrices of scores. The
// gradient does not read `out` and `lse`.
void attention(const AttentionForward&);
void attention_backward(const AttentionBackward&);

void rotary(const Rotary&);

// Update one part of a parameter, all in f64. Ignore OptimPart's `master` and
// `rates`.
void adamw(const AdamW&, const OptimPart&);
void sgd(const Sgd&, const OptimPart&);

// The value at `index` for f32, or for f64 if `wide`.
double random(Distribution, bool wide, uint64_t seed, uint64_t stream_id,
              uint64_t index, double p0, double p1);

}  // namespace dtensor::kernels::reference
