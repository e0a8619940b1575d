#include "tests/runtime/device/recording_kernels.h"

#include <array>
#include <vector>

#include "dtensor/ops/functions/lists.h"

namespace dtensor {
namespace {

using namespace kernels;

class RecordingKernels final : public Kernels {
 public:
  RecordingKernels(RecordingDevice& device, const Kernels& host)
      : device_(device), host_(host) {}

  // Those with arrays of the host's.
  void unary(Stream s, int index, int order, DType t, const double* params,
             const Pointwise& p) const override {
    std::vector<double> kept;
    if (params)
      kept.assign(params, params + fn::unary_function(index).num_params);
    device_.later(s, [=, this] {
      host_.unary({}, index, order, t, params ? kept.data() : nullptr, p);
    });
  }
  void binary(Stream s, int index, fn::By by, DType t, const double* params,
              const Pointwise& p) const override {
    std::vector<double> kept;
    if (params)
      kept.assign(params, params + fn::binary_function(index).num_params);
    device_.later(s, [=, this] {
      host_.binary({}, index, by, t, params ? kept.data() : nullptr, p);
    });
  }
  void attention(Stream s, DType t, const Attention& a, void* out,
                 const int64_t out_strides[4], void* lse) const override {
    const std::array<int64_t, 4> strides{out_strides[0], out_strides[1],
                                         out_strides[2], out_strides[3]};
    device_.later(s, [this, t, a, heads = heads_of(a), out, strides, lse] {
      Attention b = a;
      if (a.kv_head) b.kv_head = heads.data();
      host_.attention({}, t, b, out, strides.data(), lse);
    });
  }
  void attention_backward(Stream s, DType t, const Attention& a,
                          const AttentionGrad& g) const override {
    device_.later(s, [this, t, a, heads = heads_of(a), g] {
      Attention b = a;
      if (a.kv_head) b.kv_head = heads.data();
      host_.attention_backward({}, t, b, g);
    });
  }

  void gemm(Stream s, DType in, DType out, const Gemm& a3) const override {
    later(s, &Kernels::gemm, in, out, a3);
  }
  void finish_gemm(Stream s, DType t, const Gemm& a2) const override {
    later(s, &Kernels::finish_gemm, t, a2);
  }
  void gelu_tanh_backward(Stream s, DType t, int64_t rows, int64_t n,
                          const void* x, int64_t x_stride, const void* dy,
                          int64_t dy_stride, void* dx,
                          void* sum) const override {
    later(s, &Kernels::gelu_tanh_backward, t, rows, n, x, x_stride, dy,
          dy_stride, dx, sum);
  }
  void where(Stream s, DType a1, const Pointwise& a2) const override {
    later(s, &Kernels::where, a1, a2);
  }
  void reduce(Stream s, ReduceKind a1, DType a2, const Shape& shape,
              const void* in, const Shape& strides, uint32_t dims,
              void* out) const override {
    later(s, &Kernels::reduce, a1, a2, shape, in, strides, dims, out);
  }
  void scan_rows(Stream s, DType a1, int64_t rows, int64_t n, const void* x,
                 int64_t x_stride, bool reverse, const void* carry, void* out,
                 void* total) const override {
    later(s, &Kernels::scan_rows, a1, rows, n, x, x_stride, reverse, carry, out,
          total);
  }
  void sum_squares(Stream s, DType a1, int64_t n, const void* x,
                   void* sum) const override {
    later(s, &Kernels::sum_squares, a1, n, x, sum);
  }
  void softmax_rows(Stream s, DType a1, int64_t rows, int64_t n, const void* x,
                    int64_t x_stride, void* y) const override {
    later(s, &Kernels::softmax_rows, a1, rows, n, x, x_stride, y);
  }
  void log_softmax_rows(Stream s, DType a1, int64_t rows, int64_t n,
                        const void* x, int64_t x_stride,
                        void* y) const override {
    later(s, &Kernels::log_softmax_rows, a1, rows, n, x, x_stride, y);
  }
  void softmax_backward_rows(Stream s, DType a1, int64_t rows, int64_t n,
                             const void* y, const void* dy, int64_t dy_stride,
                             void* dx) const override {
    later(s, &Kernels::softmax_backward_rows, a1, rows, n, y, dy, dy_stride,
          dx);
  }
  void log_softmax_backward_rows(Stream s, DType a1, int64_t rows, int64_t n,
                                 const void* y, const void* dy,
                                 int64_t dy_stride, void* dx) const override {
    later(s, &Kernels::log_softmax_backward_rows, a1, rows, n, y, dy, dy_stride,
          dx);
  }
  void row_max_sum(Stream s, DType a1, int64_t rows, int64_t n, const void* x,
                   int64_t x_stride, void* max, void* sum) const override {
    later(s, &Kernels::row_max_sum, a1, rows, n, x, x_stride, max, sum);
  }
  void row_sum(Stream s, DType a1, int64_t rows, int64_t n, const void* x,
               int64_t x_stride, void* sum) const override {
    later(s, &Kernels::row_sum, a1, rows, n, x, x_stride, sum);
  }
  void softmax_apply(Stream s, DType a1, int64_t rows, int64_t n, const void* x,
                     int64_t x_stride, const void* max, const void* sum,
                     void* y) const override {
    later(s, &Kernels::softmax_apply, a1, rows, n, x, x_stride, max, sum, y);
  }
  void log_softmax_apply(Stream s, DType a1, int64_t rows, int64_t n,
                         const void* x, int64_t x_stride, const void* max,
                         const void* sum, void* y) const override {
    later(s, &Kernels::log_softmax_apply, a1, rows, n, x, x_stride, max, sum,
          y);
  }
  void row_dot(Stream s, DType a1, int64_t rows, int64_t n, const void* y,
               int64_t y_stride, const void* dy, int64_t dy_stride,
               void* dot) const override {
    later(s, &Kernels::row_dot, a1, rows, n, y, y_stride, dy, dy_stride, dot);
  }
  void softmax_backward_apply(Stream s, DType a1, int64_t rows, int64_t n,
                              const void* y, const void* dy, int64_t dy_stride,
                              const void* dot, void* dx) const override {
    later(s, &Kernels::softmax_backward_apply, a1, rows, n, y, dy, dy_stride,
          dot, dx);
  }
  void log_softmax_backward_apply(Stream s, DType a1, int64_t rows, int64_t n,
                                  const void* y, const void* dy,
                                  int64_t dy_stride, const void* sum_dy,
                                  void* dx) const override {
    later(s, &Kernels::log_softmax_backward_apply, a1, rows, n, y, dy,
          dy_stride, sum_dy, dx);
  }
  void topk_rows(Stream s, DType a1, int64_t rows, int64_t n, const void* x,
                 int64_t x_stride, const int64_t* ids, int64_t first, int64_t k,
                 bool largest, void* values,
                 int64_t* value_ids) const override {
    later(s, &Kernels::topk_rows, a1, rows, n, x, x_stride, ids, first, k,
          largest, values, value_ids);
  }
  void take_rows(Stream s, DType a1, int64_t rows, int64_t k, const void* x,
                 int64_t x_stride, const int64_t* index, int64_t lo, int64_t hi,
                 void* out) const override {
    later(s, &Kernels::take_rows, a1, rows, k, x, x_stride, index, lo, hi, out);
  }
  void put_rows(Stream s, DType a1, int64_t rows, int64_t k, const void* dy,
                int64_t dy_stride, const int64_t* index, int64_t lo, int64_t hi,
                void* dx) const override {
    later(s, &Kernels::put_rows, a1, rows, k, dy, dy_stride, index, lo, hi, dx);
  }
  void norm_forward(Stream s, DType a1, const Norm& a2, double eps, void* mean,
                    void* rstd, void* y) const override {
    later(s, &Kernels::norm_forward, a1, a2, eps, mean, rstd, y);
  }
  void norm_backward(Stream s, DType a1, const Norm& a2, const void* mean,
                     const void* rstd, const void* dy, int64_t dy_stride,
                     void* dx, void* dgamma, void* dbeta) const override {
    later(s, &Kernels::norm_backward, a1, a2, mean, rstd, dy, dy_stride, dx,
          dgamma, dbeta);
  }
  void row_centered_sumsq(Stream s, DType a1, int64_t rows, int64_t n,
                          const void* x, int64_t x_stride, const void* mean,
                          void* sumsq) const override {
    later(s, &Kernels::row_centered_sumsq, a1, rows, n, x, x_stride, mean,
          sumsq);
  }
  void norm_apply(Stream s, DType a1, const Norm& a2, const void* mean,
                  const void* rstd, void* y) const override {
    later(s, &Kernels::norm_apply, a1, a2, mean, rstd, y);
  }
  void norm_backward_rows(Stream s, DType a1, const Norm& a2, const void* mean,
                          const void* rstd, const void* dy, int64_t dy_stride,
                          void* s1, void* s2) const override {
    later(s, &Kernels::norm_backward_rows, a1, a2, mean, rstd, dy, dy_stride,
          s1, s2);
  }
  void norm_backward_apply(Stream s, DType a1, const Norm& a2, const void* mean,
                           const void* rstd, const void* dy, int64_t dy_stride,
                           const void* s1, const void* s2, double inv_n,
                           void* dx) const override {
    later(s, &Kernels::norm_backward_apply, a1, a2, mean, rstd, dy, dy_stride,
          s1, s2, inv_n, dx);
  }
  void norm_backward_params(Stream s, DType a1, const Norm& a2,
                            const void* mean, const void* rstd, const void* dy,
                            int64_t dy_stride, void* dgamma,
                            void* dbeta) const override {
    later(s, &Kernels::norm_backward_params, a1, a2, mean, rstd, dy, dy_stride,
          dgamma, dbeta);
  }
  void embedding(Stream s, DType a1, DType ids_type, int64_t count, int64_t h,
                 const void* table, int64_t table_stride, const void* ids,
                 int64_t lo, int64_t hi, void* out) const override {
    later(s, &Kernels::embedding, a1, ids_type, count, h, table, table_stride,
          ids, lo, hi, out);
  }
  void embedding_backward(Stream s, DType a1, DType ids_type, int64_t count,
                          int64_t h, const void* dy, int64_t dy_stride,
                          const void* ids, int64_t lo, int64_t hi,
                          DType dtable_type, bool accumulate,
                          void* dtable) const override {
    later(s, &Kernels::embedding_backward, a1, ids_type, count, h, dy,
          dy_stride, ids, lo, hi, dtable_type, accumulate, dtable);
  }
  void ce_pick(Stream s, DType a1, DType target_type, int64_t rows,
               const void* logits, int64_t stride, const void* targets,
               int64_t lo, int64_t hi, bool accumulate,
               void* picked) const override {
    later(s, &Kernels::ce_pick, a1, target_type, rows, logits, stride, targets,
          lo, hi, accumulate, picked);
  }
  void ce_range(Stream s, DType target_type, int64_t n, const void* targets,
                int64_t ignored, int64_t* ends) const override {
    later(s, &Kernels::ce_range, target_type, n, targets, ignored, ends);
  }
  void ce_backward(Stream s, DType a1, DType target_type,
                   const CeBackward& a3) const override {
    later(s, &Kernels::ce_backward, a1, target_type, a3);
  }
  void rotary(Stream s, DType a1, const Rotary& a2) const override {
    later(s, &Kernels::rotary, a1, a2);
  }
  void rotary_table(Stream s, DType stat, int64_t rows, int64_t d, double theta,
                    const int64_t* positions, int64_t offset, void* cos,
                    void* sin) const override {
    later(s, &Kernels::rotary_table, stat, rows, d, theta, positions, offset,
          cos, sin);
  }
  void adamw(Stream s, DType param_type, DType grad_type, const AdamW& a3,
             std::span<const OptimPart> parts) const override {
    later(s, &Kernels::adamw, param_type, grad_type, a3, kept(parts));
  }
  void sgd(Stream s, DType param_type, DType grad_type, const Sgd& a3,
           std::span<const OptimPart> parts) const override {
    later(s, &Kernels::sgd, param_type, grad_type, a3, kept(parts));
  }
  void clip(Stream s, const double* squares, double max_norm, double* norm,
            double* clip) const override {
    later(s, &Kernels::clip, squares, max_norm, norm, clip);
  }
  void random_box(Stream s, Distribution a1, DType a2, const RandomKey& key,
                  const Shape& global, const Shape& lo, const Shape& size,
                  void* out, const Shape& out_strides, double p0,
                  double p1) const override {
    later(s, &Kernels::random_box, a1, a2, key, global, lo, size, out,
          out_strides, p0, p1);
  }

 private:
  // The arguments are copied; pointers among them are the device's.
  template <class Family, class... Parameters, class... Arguments>
  void later(Stream s, void (Family::*kernel)(Stream, Parameters...) const,
             const Arguments&... arguments) const {
    device_.later(s, [=, this] { (host_.*kernel)(Stream{}, arguments...); });
  }
  static std::vector<OptimPart> kept(std::span<const OptimPart> parts) {
    return {parts.begin(), parts.end()};
  }
  static std::vector<int> heads_of(const Attention& a) {
    if (!a.kv_head) return {};
    return {a.kv_head, a.kv_head + a.hq};
  }

  RecordingDevice& device_;
  const Kernels& host_;
};

}  // namespace

std::unique_ptr<const Kernels> recording_kernels(RecordingDevice& device,
                                                 const Kernels& host) {
  return std::make_unique<RecordingKernels>(device, host);
}

}  // namespace dtensor
