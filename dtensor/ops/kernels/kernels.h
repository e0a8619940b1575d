// The local kernels: what one device computes on memory it holds.
//
// A kernel takes raw pointers, sizes and a stream; no tensor, mesh or autograd
// type. Throughout:
//  - Stream is null on the CPU and a cudaStream_t on a GPU.
//  - Strides are in elements, and may be 0 (broadcast) for inputs. "Row stride"
//    is that of a [rows, n] operand whose rows are contiguous.
//  - Outputs are contiguous row-major unless a stride is given for them, and do
//    not overlap an input unless the kernel says that they may.
//  - Sizes of 0 are ordinary: nothing is read, and outputs that do not depend
//    on the empty dimension get the value of an empty sum, maximum, ...
//  - "Floats" are f32, f64 and bf16. bf16 computes in f32 and rounds once, at
//    the end. `stat` is the type of per-row statistics: f64 for f64, else f32.
//  - Throws Error only for a dtype or function that a kernel does not have;
//    nothing depends on data.
//  - A CPU kernel runs in the calling thread. oneDNN and OpenMP would start
//    threads of their own: the caller sets omp_set_num_threads(1) once in each
//    rank's thread. Kernels keep scratch and oneDNN primitives per thread.
//  - A value's bits depend on its operands alone, not on its position in the
//    array or on alignment (reductions and products: on the sizes too).
#pragma once
#include <cstdint>

#include "dtensor/placement/dtype.h"
#include "dtensor/placement/shape.h"

namespace dtensor::kernels {

using Stream = void*;

// f64 for f64, else f32.
constexpr DType stat_of(DType t) {
  return t == DType::kF64 ? DType::kF64 : DType::kF32;
}

// --- Matrix product ---------------------------------------------------------
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
// All dtypes but bool. bf16 sums in f32.
void gemm(Stream, DType, const Gemm&);
// a and b of type `in`, c of type `out`: equal, or (bf16, f32).
void gemm(Stream, DType in, DType out, const Gemm&);

// --- Pointwise --------------------------------------------------------------
// Inputs of one shape with strides of their own, a contiguous output. `out` may
// be in[i] itself where that input is contiguous and of the output's item size.
struct Pointwise {
  Shape shape;
  void* out = nullptr;
  const void* in[3] = {};
  Shape strides[3];
};
// A function of fn::UnaryFunctions, by index. order 0: out = f(in[0]).
// order 1, 2: out = f'(in[0]) in[1], f''(in[0]) in[1]. Floats; i32 and i64 at
// order 0 where fn::integral_of(index). `params` may be null if it has none.
void unary(Stream, int index, int order, DType, const double* params,
           const Pointwise&);
// A function of fn::BinaryFunctions, by index, on two operands of type `in`;
// the output is bool where fn::gives_bool(index), else `in`. bool operands: the
// comparisons and logical functions only. Integers wrap around; integer
// division rounds towards zero, and x / 0 is 0; x ^ negative is 0, but for
// x = 1 and -1.
void binary(Stream, int index, DType in, const Pointwise&);
// out = in[0] (bool) ? in[1] : in[2]. All dtypes.
void where(Stream, DType, const Pointwise&);
// in[0] converted. Float to integer truncates, and saturates where the value
// does not fit (NaN: 0); to bool is != 0.
void cast(Stream, DType from, DType to, const Pointwise&);

// --- Reductions -------------------------------------------------------------
enum class ReduceKind : uint8_t { kSum, kMax, kMin, kProd };
// Reduces the dimensions whose bit (1 << dim) is set in `dims`; out is
// contiguous over the others. All dtypes (bool: not the sum; max is "any",
// min and prod are "all"). Integer sums wrap around. An empty reduction gives
// 0; the lowest value (-inf); the highest (+inf); 1. A NaN wins in max and min.
void reduce(Stream, ReduceKind, DType, const Shape& shape, const void* in,
            const Shape& strides, uint32_t dims, void* out);
// Sum of squares of n contiguous floats, accumulated in f64.
double sum_squares(Stream, DType, int64_t n, const void* x);

// --- Softmax, on [rows, n] --------------------------------------------------
// x has a row stride; y is contiguous. Floats. y may be x, dx may be dy or y,
// where both are contiguous. A row of all -inf gives NaN.
void softmax_rows(Stream, DType, int64_t rows, int64_t n, const void* x,
                  int64_t x_stride, void* y);
void log_softmax_rows(Stream, DType, int64_t rows, int64_t n, const void* x,
                      int64_t x_stride, void* y);
// dx = y (dy - sum(y dy)), from the softmax y. All contiguous but dy.
void softmax_backward_rows(Stream, DType, int64_t rows, int64_t n,
                           const void* y, const void* dy, int64_t dy_stride,
                           void* dx);
// dx = dy - exp(y) sum(dy), from the log-softmax y.
void log_softmax_backward_rows(Stream, DType, int64_t rows, int64_t n,
                               const void* y, const void* dy, int64_t dy_stride,
                               void* dx);
// The same in pieces, for rows that are split among ranks: statistics of the
// local part, to be combined by the caller, then the pass that applies them.
// All statistics are `stat`, contiguous [rows]. n may be 0: max -inf, sums 0.
void row_max(Stream, DType, int64_t rows, int64_t n, const void* x,
             int64_t x_stride, void* max);
// sum of exp(x - max), for the max of the whole row.
void row_exp_sum(Stream, DType, int64_t rows, int64_t n, const void* x,
                 int64_t x_stride, const void* max, void* sum);
void row_sum(Stream, DType, int64_t rows, int64_t n, const void* x,
             int64_t x_stride, void* sum);
// y = exp(x - max) / sum.
void softmax_apply(Stream, DType, int64_t rows, int64_t n, const void* x,
                   int64_t x_stride, const void* max, const void* sum, void* y);
// y = x - max - log(sum).
void log_softmax_apply(Stream, DType, int64_t rows, int64_t n, const void* x,
                       int64_t x_stride, const void* max, const void* sum,
                       void* y);
// sum(y dy).
void row_dot(Stream, DType, int64_t rows, int64_t n, const void* y,
             int64_t y_stride, const void* dy, int64_t dy_stride, void* dot);
// dx = y (dy - dot).
void softmax_backward_apply(Stream, DType, int64_t rows, int64_t n,
                            const void* y, const void* dy, int64_t dy_stride,
                            const void* dot, void* dx);
// dx = dy - exp(y) sum_dy.
void log_softmax_backward_apply(Stream, DType, int64_t rows, int64_t n,
                                const void* y, const void* dy,
                                int64_t dy_stride, const void* sum_dy,
                                void* dx);

// --- Layer norm and RMS norm, on [rows, n] ----------------------------------
// xhat = (x - mean) rstd;  y = xhat gamma + beta. `mean` is null for RMS norm,
// gamma and beta where there are none. gamma and beta are [n] of x's type; mean
// and rstd are `stat`, [rows]. Floats.
struct Norm {
  int64_t rows = 0, n = 0;
  const void* x = nullptr;
  int64_t x_stride = 0;
  const void* gamma = nullptr;
  const void* beta = nullptr;
};
// Whole rows in one pass. rstd = 1 / sqrt(variance + eps), for RMS norm of the
// mean square. Writes mean (null: RMS norm), rstd and the contiguous y.
void norm_forward(Stream, DType, const Norm&, double eps, void* mean,
                  void* rstd, void* y);
// dx from dy (contiguous, may be null to skip it), and dgamma, dbeta ([n] of
// `stat`; null to skip): their sums over the rows. dx may be dy.
void norm_backward(Stream, DType, const Norm&, const void* mean,
                   const void* rstd, const void* dy, int64_t dy_stride,
                   void* dx, void* dgamma, void* dbeta);
// The pieces, for split rows: row_sum and this, the sum of (x - mean)^2 (mean
// null: of x^2), combined by the caller into mean and rstd; then the pass.
void row_centered_sumsq(Stream, DType, int64_t rows, int64_t n, const void* x,
                        int64_t x_stride, const void* mean, void* sumsq);
void norm_apply(Stream, DType, const Norm&, const void* mean, const void* rstd,
                void* y);
// s1 = sum(dy gamma) and s2 = sum(dy gamma xhat) of each row; `stat`. RMS norm
// has no use for s1: it is 0, and may be null.
void norm_backward_rows(Stream, DType, const Norm&, const void* mean,
                        const void* rstd, const void* dy, int64_t dy_stride,
                        void* s1, void* s2);
// dx = rstd (dy gamma - (s1 + xhat s2) inv_n), without s1 for RMS norm (null
// mean); inv_n is 1 / the whole row's length. dx may be dy.
void norm_backward_apply(Stream, DType, const Norm&, const void* mean,
                         const void* rstd, const void* dy, int64_t dy_stride,
                         const void* s1, const void* s2, double inv_n,
                         void* dx);
// dgamma = sum over rows of dy xhat, dbeta = of dy. [n] of `stat`; null to
// skip.
void norm_backward_params(Stream, DType, const Norm&, const void* mean,
                          const void* rstd, const void* dy, int64_t dy_stride,
                          void* dgamma, void* dbeta);

// --- Embedding --------------------------------------------------------------
// Row ids[i] - lo of the table [hi - lo, h] where lo <= ids[i] < hi, else
// zeros; out is [count, h]. `ids` are i32 or i64. All dtypes.
void embedding(Stream, DType, DType ids_type, int64_t count, int64_t h,
               const void* table, int64_t table_stride, const void* ids,
               int64_t lo, int64_t hi, void* out);
// dtable [hi - lo, h], contiguous: set to zero (unless `accumulate`), then dy's
// rows are added in order of i. Floats; `dtable_type` is dy's, or f32 for bf16.
void embedding_backward(Stream, DType, DType ids_type, int64_t count, int64_t h,
                        const void* dy, int64_t dy_stride, const void* ids,
                        int64_t lo, int64_t hi, DType dtable_type,
                        bool accumulate, void* dtable);

// --- Cross entropy ----------------------------------------------------------
// On logits [rows, hi - lo], the columns lo..hi of a vocabulary. A rank whose
// columns are several ranges calls once for each. Targets are i32 or i64 global
// columns. Statistics are `stat`, [rows]. Floats.
//
// picked = the target's logit, where the range holds it. Elsewhere 0, or what
// it was with `accumulate`.
void ce_pick(Stream, DType, DType target_type, int64_t rows, const void* logits,
             int64_t stride, const void* targets, int64_t lo, int64_t hi,
             bool accumulate, void* picked);
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
void ce_backward(Stream, DType, DType target_type, const CeBackward&);

// --- Attention --------------------------------------------------------------
// out = softmax(scale q k^T + mask) v for each batch and query head. q and out
// are [b, hq, s, d]; k and v [b, hkv, t, d]; strides in that order, the last 1.
// Query head h uses the local head kv_head[h] (null: h * hkv / hq).
// A query with no key to attend to gets zeros, and lse -inf.
struct Attention {
  int64_t b = 0, hq = 0, hkv = 0, s = 0, t = 0, d = 0;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  int64_t q_strides[4] = {}, k_strides[4] = {}, v_strides[4] = {};
  const int* kv_head = nullptr;
  double scale = 1;
  // Query i attends to keys j <= i + query_offset.
  bool causal = false;
  int64_t query_offset = 0;
  // Null, or [b, hq, s, t] with strides (0 to broadcast): true where a query
  // may attend, or numbers to add (of q's type).
  const void* mask = nullptr;
  bool mask_is_bool = false;
  int64_t mask_strides[4] = {};
};
// Also writes lse, the log of each query's sum of exponentials: `stat`,
// contiguous [b, hq, s]. Floats. Scratch is bounded by a block of queries and
// one head of k and v.
void attention(Stream, DType, const Attention&, void* out,
               const int64_t out_strides[4], void* lse);
// dq, dk, dv are overwritten, with strides of their own (the last 1).
struct AttentionGrad {
  const void* out = nullptr;
  int64_t out_strides[4] = {};
  const void* dout = nullptr;
  int64_t dout_strides[4] = {};
  const void* lse = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  int64_t dq_strides[4] = {}, dk_strides[4] = {}, dv_strides[4] = {};
};
void attention_backward(Stream, DType, const Attention&, const AttentionGrad&);

// --- Rotary embedding -------------------------------------------------------
// out[..., :d/2] = x1 cos - x2 sin; out[..., d/2:] = x2 cos + x1 sin, for the
// halves x1, x2 of x's last dimension and the angle position theta^(-2i/d).
// Angles are computed in f64, sines and cosines rounded to `stat`.
struct Rotary {
  int64_t b = 0, h = 0, s = 0, d = 0;  // d is even
  const void* x = nullptr;
  int64_t x_strides[4] = {};  // the last is 1
  void* out = nullptr;        // may be x, with x's strides
  int64_t out_strides[4] = {};
  // Tables [s, d/2] of `stat`, or null: then the position of row i is
  // positions[i], or position_offset + i.
  const void* cos = nullptr;
  const void* sin = nullptr;
  double theta = 10000;
  const int64_t* positions = nullptr;
  int64_t position_offset = 0;
  bool inverse = false;  // rotate back: the gradient
};
void rotary(Stream, DType, const Rotary&);
// Fills such tables; they are worth keeping.
void rotary_table(Stream, DType stat, int64_t s, int64_t d, double theta,
                  const int64_t* positions, int64_t position_offset, void* cos,
                  void* sin);

// --- Optimizers -------------------------------------------------------------
// torch.optim.AdamW, of n contiguous elements: decoupled decay, bias
// correction; `step` counts from 1. m, v and master are `stat` of the
// parameter's type. With a master (for bf16), the master is what is updated,
// and param its rounding. grad is of param's type, or f32; it is first
// multiplied by grad_scale (clipping).
struct AdamW {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0.01;
  int64_t step = 1;
  double grad_scale = 1;
};
void adamw(Stream, DType param_type, DType grad_type, int64_t n, const AdamW&,
           void* param, const void* grad, void* m, void* v, void* master);
// torch.optim.SGD: g = grad grad_scale + weight_decay p; the buffer (null:
// none; `stat`, zeros at first) becomes momentum buffer + g; p -= lr buffer,
// with nesterov lr (g + momentum buffer).
struct Sgd {
  double lr = 1e-3, momentum = 0, weight_decay = 0;
  bool nesterov = false;
  double grad_scale = 1;
};
void sgd(Stream, DType param_type, DType grad_type, int64_t n, const Sgd&,
         void* param, const void* grad, void* buffer, void* master);

// --- Random numbers ---------------------------------------------------------
// A function of (seed, stream id, row-major index in the global shape), so that
// any box on any rank holds the same numbers: Philox4x32-10 (philox.h) with key
// seed and counter (block, stream id). One block serves the four consecutive
// indices 4 block ... (32-bit words), or two (64-bit words), in order.
enum class Distribution : uint8_t {
  // [0, 1) scaled to [p0, p1): f32 with 24 bits, f64 with 53 (64-bit words),
  // bf16 with 8.
  kUniform,
  // Mean p0, standard deviation p1, by Box-Muller in f64; neighbours at even
  // and odd indices share a pair. f64 from 64-bit words. Floats.
  kNormal,
  // 1 with probability p0, else 0; of all dtypes, the same draws (32 bits).
  kBernoulli,
  // i32, i64: an integer in [p0, p1), from 64-bit words.
  kInteger,
  // i32, i64: the words themselves.
  kBits,
};
// The box [lo, lo + size) of `global`, written at out with strides.
void random_box(Stream, Distribution, DType, uint64_t seed, uint64_t stream_id,
                const Shape& global, const Shape& lo, const Shape& size,
                void* out, const Shape& out_strides, double p0, double p1);

}  // namespace dtensor::kernels
