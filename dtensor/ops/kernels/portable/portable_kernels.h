// Every kernel, written once: what the files of this folder define. nvcc makes
// CUDA's of them; g++ makes kernels of the host's memory, for tests.
#pragma once
#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/runtime/device/portable/executor.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {

class PortableKernels : public Kernels {
 public:
  // GemmKernels
  void gemm(Stream, DType in, DType out, const Gemm&) const override;

  // PointwiseKernels
  void unary(Stream, int index, int order, DType, const double* params,
             const Pointwise&) const override;
  void binary(Stream, int index, fn::By, DType, const double* params,
              const Pointwise&) const override;
  void where(Stream, DType, const Pointwise&) const override;

  // ReduceKernels
  void reduce(Stream, ReduceKind, DType, const Shape& shape, const void* in,
              const Shape& strides, uint32_t dims, void* out) const override;
  void sum_squares(Stream, DType, int64_t n, const void* x,
                   void* sum) const override;
  void scan_rows(Stream, DType, int64_t rows, int64_t n, const void* x,
                 int64_t x_stride, bool reverse, const void* carry, void* out,
                 void* total) const override;

  // RowKernels
  void softmax_rows(Stream, DType, int64_t rows, int64_t n, const void* x,
                    int64_t x_stride, void* y) const override;
  void log_softmax_rows(Stream, DType, int64_t rows, int64_t n, const void* x,
                        int64_t x_stride, void* y) const override;
  void softmax_backward_rows(Stream, DType, int64_t rows, int64_t n,
                             const void* y, const void* dy, int64_t dy_stride,
                             void* dx) const override;
  void log_softmax_backward_rows(Stream, DType, int64_t rows, int64_t n,
                                 const void* y, const void* dy,
                                 int64_t dy_stride, void* dx) const override;
  void row_max(Stream, DType, int64_t rows, int64_t n, const void* x,
               int64_t x_stride, void* max) const override;
  void row_exp_sum(Stream, DType, int64_t rows, int64_t n, const void* x,
                   int64_t x_stride, const void* max, void* sum) const override;
  void row_sum(Stream, DType, int64_t rows, int64_t n, const void* x,
               int64_t x_stride, void* sum) const override;
  void softmax_apply(Stream, DType, int64_t rows, int64_t n, const void* x,
                     int64_t x_stride, const void* max, const void* sum,
                     void* y) const override;
  void log_softmax_apply(Stream, DType, int64_t rows, int64_t n, const void* x,
                         int64_t x_stride, const void* max, const void* sum,
                         void* y) const override;
  void row_dot(Stream, DType, int64_t rows, int64_t n, const void* y,
               int64_t y_stride, const void* dy, int64_t dy_stride,
               void* dot) const override;
  void softmax_backward_apply(Stream, DType, int64_t rows, int64_t n,
                              const void* y, const void* dy, int64_t dy_stride,
                              const void* dot, void* dx) const override;
  void log_softmax_backward_apply(Stream, DType, int64_t rows, int64_t n,
                                  const void* y, const void* dy,
                                  int64_t dy_stride, const void* sum_dy,
                                  void* dx) const override;

  // NormKernels
  void norm_forward(Stream, DType, const Norm&, double eps, void* mean,
                    void* rstd, void* y) const override;
  void norm_backward(Stream, DType, const Norm&, const void* mean,
                     const void* rstd, const void* dy, int64_t dy_stride,
                     void* dx, void* dgamma, void* dbeta) const override;
  void row_centered_sumsq(Stream, DType, int64_t rows, int64_t n, const void* x,
                          int64_t x_stride, const void* mean,
                          void* sumsq) const override;
  void norm_apply(Stream, DType, const Norm&, const void* mean,
                  const void* rstd, void* y) const override;
  void norm_backward_rows(Stream, DType, const Norm&, const void* mean,
                          const void* rstd, const void* dy, int64_t dy_stride,
                          void* s1, void* s2) const override;
  void norm_backward_apply(Stream, DType, const Norm&, const void* mean,
                           const void* rstd, const void* dy, int64_t dy_stride,
                           const void* s1, const void* s2, double inv_n,
                           void* dx) const override;
  void norm_backward_params(Stream, DType, const Norm&, const void* mean,
                            const void* rstd, const void* dy, int64_t dy_stride,
                            void* dgamma, void* dbeta) const override;

  // EmbeddingKernels
  void embedding(Stream, DType, DType ids_type, int64_t count, int64_t h,
                 const void* table, int64_t table_stride, const void* ids,
                 int64_t lo, int64_t hi, void* out) const override;
  void embedding_backward(Stream, DType, DType ids_type, int64_t count,
                          int64_t h, const void* dy, int64_t dy_stride,
                          const void* ids, int64_t lo, int64_t hi,
                          DType dtable_type, bool accumulate,
                          void* dtable) const override;

  // CrossEntropyKernels
  void ce_pick(Stream, DType, DType target_type, int64_t rows,
               const void* logits, int64_t stride, const void* targets,
               int64_t lo, int64_t hi, bool accumulate,
               void* picked) const override;
  void ce_range(Stream, DType target_type, int64_t n, const void* targets,
                int64_t ignored, int64_t* ends) const override;
  void ce_backward(Stream, DType, DType target_type,
                   const CeBackward&) const override;

  // AttentionKernels
  void attention(Stream, DType, const Attention&, void* out,
                 const int64_t out_strides[4], void* lse) const override;
  void attention_backward(Stream, DType, const Attention&,
                          const AttentionGrad&) const override;

  // RotaryKernels
  void rotary(Stream, DType, const Rotary&) const override;
  void rotary_table(Stream, DType stat, int64_t s, int64_t d, double theta,
                    const int64_t* positions, int64_t position_offset,
                    void* cos, void* sin) const override;

  // OptimKernels
  void adamw(Stream, DType param_type, DType grad_type, int64_t n, const AdamW&,
             void* param, const void* grad, void* m, void* v,
             void* master) const override;
  void sgd(Stream, DType param_type, DType grad_type, int64_t n, const Sgd&,
           void* param, const void* grad, void* buffer,
           void* master) const override;
  void clip(Stream, const double* squares, double max_norm, double* norm,
            double* clip) const override;

  // RandomKernels
  void random_box(Stream, Distribution, DType, uint64_t seed,
                  uint64_t stream_id, const Shape& global, const Shape& lo,
                  const Shape& size, void* out, const Shape& out_strides,
                  double p0, double p1) const override;
};

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels

namespace dtensor {

const Kernels& portable_kernels();  // of the host's memory

}  // namespace dtensor
