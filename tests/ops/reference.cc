// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "dtensor/ops/functions/lists.h"
#include "dtensor/ops/kernels/attention.h"
#include "dtensor/ops/kernels/gemm.h"
#include "dtensor/ops/kernels/optim.h"
#include "dtensor/ops/kernels/philox.h"
#include "dtensor/ops/kernels/random.h"
#include "dtensor/ops/kernels/reduce.h"
#include "dtensor/ops/kernels/rotary.h"
#include "dtensor/placement/error.h"

namespace dtensor::kernels::reference {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Calls f(index) for every index of the shape, in row-major order.
template <class F>
void for_indices(const Shape& shape, F&& f) {
  Shape index = Shape::filled(shape.size(), 0);
  for (int64_t left = numel(shape); left > 0; --left) {
    f(index);
    for (int d = shape.size() - 1; d >= 0; --d) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
}

int64_t offset(const Shape& index, const Shape& strides) {
  int64_t r = 0;
  for (int i = 0; i < index.size(); ++i) r += index[i] * strides[i];
  return r;
}

}  // namespace

double gelu_tanh(double x) {
  const double k = std::sqrt(2 / M_PI);
  return 0.5 * x * (1 + std::tanh(k * (x + 0.044715 * x * x * x)));
}

namespace {

void finish(const Gemm& g) {
  const Epilogue& e = g.epilogue;
  if (e.kind == Epilogue::kNone) return;
  const auto* bias = static_cast<const double*>(e.bias);
  if (e.kind == Epilogue::kSumB) {
    auto* sum = static_cast<double*>(e.b_sum);
    for (int64_t j = 0; j < g.n; ++j) sum[j] = 0;
    for_indices(g.batch, [&](const Shape& at) {
      for (int64_t p = 0; p < g.k; ++p)
        for (int64_t j = 0; j < g.n; ++j)
          sum[j] += static_cast<const double*>(
              g.b)[offset(at, g.b_batch_strides) + p * g.b_k + j * g.b_n];
    });
    return;
  }
  auto* aux = static_cast<double*>(e.aux);
  for_indices(g.batch, [&](const Shape& at) {
    for (int64_t i = 0; i < g.m; ++i)
      for (int64_t j = 0; j < g.n; ++j) {
        const int64_t to =
            offset(at, g.c_batch_strides) + i * g.c_m + j * g.c_n;
        double& c = static_cast<double*>(g.c)[to];
        if (bias) c += bias[j];
        if (e.kind != Epilogue::kGeluTanh) continue;
        aux[to] = c;
        c = gelu_tanh(c);
      }
  });
}

}  // namespace

void gemm(const Gemm& g) {
  const auto* a = static_cast<const double*>(g.a);
  const auto* b = static_cast<const double*>(g.b);
  auto* c = static_cast<double*>(g.c);
  if (!g.accumulate) {
    Shape kept = g.batch;
    for (int i = 0; i < kept.size(); ++i)
      if (g.c_batch_strides[i] == 0) kept[i] = 1;
    for_indices(kept, [&](const Shape& at) {
      for (int64_t i = 0; i < g.m; ++i)
        for (int64_t j = 0; j < g.n; ++j)
          c[offset(at, g.c_batch_strides) + i * g.c_m + j * g.c_n] = 0;
    });
  }
  for_indices(g.batch, [&](const Shape& at) {
    const double* const x = a + offset(at, g.a_batch_strides);
    const double* const y = b + offset(at, g.b_batch_strides);
    for (int64_t i = 0; i < g.m; ++i)
      for (int64_t j = 0; j < g.n; ++j) {
        double& sum = c[offset(at, g.c_batch_strides) + i * g.c_m + j * g.c_n];
        for (int64_t p = 0; p < g.k; ++p)
          sum += x[i * g.a_m + p * g.a_k] * y[p * g.b_k + j * g.b_n];
      }
  });
  finish(g);
}

bool has_value(const fn::Function& f, DType t) {
  if (is_float(t))
    return fn::takes_floats(f.takes) && (f.rounds || !is_half_float(t));
  return t == DType::kBool ? fn::takes_bools(f.takes)
                           : fn::takes_integers(f.takes);
}

namespace {

double number(double x) { return x; }
double number(bool x) { return x; }
double number(fn::Int<int64_t> x) { return static_cast<double>(x.v); }
double number(fn::Int<uint8_t> x) { return x.v != 0; }

template <class F>
constexpr bool takes(DType t) {
  constexpr fn::Takes kTakes = fn::facts<F>().takes;
  return t == DType::kF64    ? fn::takes_floats(kTakes)
         : t == DType::kBool ? fn::takes_bools(kTakes)
                             : fn::takes_integers(kTakes);
}

template <class F>
double unary_value(DType t, double x, const double* p) {
  if constexpr (takes<F>(DType::kF64))
    if (is_float(t)) return number(F::value(x, p));
  if constexpr (takes<F>(DType::kBool))
    if (t == DType::kBool) return number(F::value(fn::Int<uint8_t>(x), p));
  if constexpr (takes<F>(DType::kI64))
    if (!is_float(t)) return number(F::value(fn::Int<int64_t>(x), p));
  fail("reference", "{} has no value for {}", F::name, name(t));
}

template <class F>
double binary_value(DType t, double a, double b, const double* p) {
  if constexpr (takes<F>(DType::kF64))
    if (is_float(t)) return number(F::value(a, b, p));
  if constexpr (takes<F>(DType::kBool))
    if (t == DType::kBool)
      return number(F::value(fn::Int<uint8_t>(a), fn::Int<uint8_t>(b), p));
  if constexpr (takes<F>(DType::kI64))
    if (!is_float(t))
      return number(F::value(fn::Int<int64_t>(a), fn::Int<int64_t>(b), p));
  fail("reference", "{} has no value for {}", F::name, name(t));
}

template <class... F>
double unary_of(fn::FunctionList<F...>, int index, DType t, double x,
                const double* p) {
  using Value = double (*)(DType, double, const double*);
  static constexpr Value all[] = {&unary_value<F>...};
  return all[index](t, x, p);
}
template <class... F>
double binary_of(fn::FunctionList<F...>, int index, DType t, double a, double b,
                 const double* p) {
  using Value = double (*)(DType, double, double, const double*);
  static constexpr Value all[] = {&binary_value<F>...};
  return all[index](t, a, b, p);
}

}  // namespace

double unary(int index, DType t, double x, const double* p) {
  return unary_of(fn::UnaryFunctions(), index, t, x, p);
}

double binary(int index, DType t, double a, double b, const double* p) {
  return binary_of(fn::BinaryFunctions(), index, t, a, b, p);
}

void reduce(ReduceKind kind, const Shape& shape, const double* in,
            const Shape& strides, uint32_t dims, double* out) {
  Shape kept;
  for (int i = 0; i < shape.size(); ++i)
    if (!(dims >> i & 1)) kept.push_back(shape[i]);
  const Shape dense = contiguous_strides(kept);
  const double identity = kind == ReduceKind::kSum   ? 0
                          : kind == ReduceKind::kMax ? -kInf
                          : kind == ReduceKind::kMin ? kInf
                                                     : 1;
  std::fill_n(out, numel(kept), identity);
  for_indices(shape, [&](const Shape& index) {
    Shape at;
    for (int i = 0; i < shape.size(); ++i)
      if (!(dims >> i & 1)) at.push_back(index[i]);
    double& y = out[offset(at, dense)];
    const double x = in[offset(index, strides)];
    switch (kind) {
      case ReduceKind::kSum:
        y += x;
        break;
      case ReduceKind::kProd:
        y *= x;
        break;
      case ReduceKind::kMax:
        y = fn::max(y, x);
        break;
      case ReduceKind::kMin:
        y = fn::min(y, x);
        break;
    }
  });
}

void softmax(int64_t rows, int64_t n, const double* x, double* y) {
  for (int64_t r = 0; r < rows; ++r, x += n, y += n) {
    double max = -kInf, sum = 0;
    for (int64_t i = 0; i < n; ++i) max = std::max(max, x[i]);
    for (int64_t i = 0; i < n; ++i) sum += std::exp(x[i] - max);
    for (int64_t i = 0; i < n; ++i) y[i] = std::exp(x[i] - max) / sum;
  }
}

void log_softmax(int64_t rows, int64_t n, const double* x, double* y) {
  for (int64_t r = 0; r < rows; ++r, x += n, y += n) {
    double max = -kInf, sum = 0;
    for (int64_t i = 0; i < n; ++i) max = std::max(max, x[i]);
    for (int64_t i = 0; i < n; ++i) sum += std::exp(x[i] - max);
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] - max - std::log(sum);
  }
}

void softmax_backward(int64_t rows, int64_t n, const double* y,
                      const double* dy, double* dx) {
  for (int64_t r = 0; r < rows; ++r, y += n, dy += n, dx += n) {
    double dot = 0;
    for (int64_t i = 0; i < n; ++i) dot += y[i] * dy[i];
    for (int64_t i = 0; i < n; ++i) dx[i] = y[i] * (dy[i] - dot);
  }
}

void log_softmax_backward(int64_t rows, int64_t n, const double* y,
                          const double* dy, double* dx) {
  for (int64_t r = 0; r < rows; ++r, y += n, dy += n, dx += n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += dy[i];
    for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] - std::exp(y[i]) * sum;
  }
}

void norm(int64_t rows, int64_t n, const double* x, const double* gamma,
          const double* beta, bool rms, double eps, double* mean, double* rstd,
          double* y) {
  const auto count = static_cast<double>(n);
  for (int64_t r = 0; r < rows; ++r, x += n, y += n) {
    double m = 0, var = 0;
    for (int64_t i = 0; i < n && !rms; ++i) m += x[i] / count;
    for (int64_t i = 0; i < n; ++i) var += (x[i] - m) * (x[i] - m) / count;
    const double s = 1 / std::sqrt(var + eps);
    if (mean) mean[r] = m;
    rstd[r] = s;
    for (int64_t i = 0; i < n; ++i)
      y[i] = (x[i] - m) * s * (gamma ? gamma[i] : 1) + (beta ? beta[i] : 0);
  }
}

void norm_backward(int64_t rows, int64_t n, const double* x,
                   const double* gamma, bool rms, const double* mean,
                   const double* rstd, const double* dy, double* dx,
                   double* dgamma, double* dbeta) {
  std::fill_n(dgamma, n, 0.0);
  std::fill_n(dbeta, n, 0.0);
  for (int64_t r = 0; r < rows; ++r, x += n, dy += n, dx += n) {
    const double m = rms ? 0 : mean[r], s = rstd[r];
    double s1 = 0, s2 = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double g = dy[i] * (gamma ? gamma[i] : 1), xhat = (x[i] - m) * s;
      s1 += g;
      s2 += g * xhat;
      dgamma[i] += dy[i] * xhat;
      dbeta[i] += dy[i];
    }
    for (int64_t i = 0; i < n; ++i) {
      const double g = dy[i] * (gamma ? gamma[i] : 1), xhat = (x[i] - m) * s;
      dx[i] = s * (g - ((rms ? 0 : s1) + xhat * s2) / static_cast<double>(n));
    }
  }
}

void cross_entropy(int64_t rows, int64_t n, const double* x,
                   const int64_t* targets, double smoothing,
                   const double* scale, double* loss, double* dx) {
  std::vector<double> log_p(static_cast<size_t>(n));
  const double share = smoothing / static_cast<double>(n);
  for (int64_t r = 0; r < rows; ++r) {
    log_softmax(1, n, x + r * n, log_p.data());
    loss[r] = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double want = share + (i == targets[r] ? 1 - smoothing : 0.0);
      const double lp = log_p[static_cast<size_t>(i)];
      loss[r] -= want * lp;
      dx[r * n + i] = scale[r] == 0 ? 0 : scale[r] * (std::exp(lp) - want);
    }
  }
}

namespace {

// Sets p to the probabilities of query i, and `slope`, unless null, to the
// derivatives of its capped scores; returns the log of the sum of exponentials.
double probabilities(const Attention& a, int64_t b, int64_t h, int64_t kv,
                     int64_t i, double* p, double* slope = nullptr) {
  const auto* q = static_cast<const double*>(a.q.data) + b * a.q.strides[0] +
                  h * a.q.strides[1] + i * a.q.strides[2];
  double max = -kInf, sum = 0;
  for (int64_t j = 0; j < a.t; ++j) {
    const auto* k = static_cast<const double*>(a.k.data) + b * a.k.strides[0] +
                    kv * a.k.strides[1] + j * a.k.strides[2];
    double s = 0;
    for (int64_t e = 0; e < a.d; ++e) s += a.scale * q[e] * k[e];
    if (a.soft_cap != 0) s = a.soft_cap * std::tanh(s / a.soft_cap);
    if (slope) slope[j] = a.soft_cap == 0 ? 1 : 1 - std::pow(s / a.soft_cap, 2);
    if (a.mask.data) {
      const int64_t at = b * a.mask.strides[0] + h * a.mask.strides[1] +
                         i * a.mask.strides[2] + j * a.mask.strides[3];
      if (a.mask_is_bool)
        s = static_cast<const bool*>(a.mask.data)[at] ? s : -kInf;
      else
        s += static_cast<const double*>(a.mask.data)[at];
    }
    const int64_t before = i + a.query_offset - j;
    if (a.causal && before < 0) s = -kInf;
    if (a.causal && a.window && before >= a.window) s = -kInf;
    p[j] = s;
    max = std::max(max, s);
  }
  for (int64_t j = 0; j < a.t; ++j) {
    p[j] = max == -kInf ? 0 : std::exp(p[j] - max);
    sum += p[j];
  }
  for (int64_t j = 0; j < a.t; ++j) p[j] /= sum == 0 ? 1 : sum;
  return sum == 0 ? -kInf : max + std::log(sum);
}

int64_t kv_of(const Attention& a, int64_t h) {
  return a.kv_head.empty() ? h * a.hkv / a.hq
                           : a.kv_head[static_cast<size_t>(h)];
}

// Row i of a [b, h, s, d] operand.
const double* row(const HeadsIn& x, int64_t b, int64_t h, int64_t i) {
  return static_cast<const double*>(x.data) + b * x.strides[0] +
         h * x.strides[1] + i * x.strides[2];
}
double* row(const HeadsOut& x, int64_t b, int64_t h, int64_t i) {
  return const_cast<double*>(row(HeadsIn{x.data, x.strides}, b, h, i));
}

template <class F>
void for_queries(const Attention& a, F&& f) {
  for (int64_t b = 0; b < a.b; ++b)
    for (int64_t h = 0; h < a.hq; ++h)
      for (int64_t i = 0; i < a.s; ++i) f(b, h, i);
}

}  // namespace

void attention(const AttentionForward& f) {
  const Attention& a = f.of;
  auto* lse = static_cast<double*>(f.lse);
  std::vector<double> p(static_cast<size_t>(a.t));
  for_queries(a, [&](int64_t b, int64_t h, int64_t i) {
    const int64_t kv = kv_of(a, h);
    lse[(b * a.hq + h) * a.s + i] = probabilities(a, b, h, kv, i, p.data());
    auto* o = row(f.out, b, h, i);
    std::fill_n(o, a.d, 0.0);
    for (int64_t j = 0; j < a.t; ++j) {
      const auto* v = row(a.v, b, kv, j);
      for (int64_t e = 0; e < a.d; ++e)
        o[e] += p[static_cast<size_t>(j)] * v[e];
    }
  });
}

void attention_backward(const AttentionBackward& g) {
  const Attention& a = g.of;
  std::vector<double> p(static_cast<size_t>(a.t)), dp = p, slope = p;
  for (int64_t b = 0; b < a.b; ++b)
    for (int64_t h = 0; h < a.hkv; ++h)
      for (int64_t j = 0; j < a.t; ++j) {
        std::fill_n(row(g.dk, b, h, j), a.d, 0.0);
        std::fill_n(row(g.dv, b, h, j), a.d, 0.0);
      }
  for_queries(a, [&](int64_t b, int64_t h, int64_t i) {
    const int64_t kv = kv_of(a, h);
    probabilities(a, b, h, kv, i, p.data(), slope.data());
    const auto* q = row(a.q, b, h, i);
    const auto* dy = row(g.dout, b, h, i);
    auto* dq = row(g.dq, b, h, i);
    std::fill_n(dq, a.d, 0.0);
    double dot = 0;
    for (int64_t j = 0; j < a.t; ++j) {
      const auto* v = row(a.v, b, kv, j);
      auto* dv = row(g.dv, b, kv, j);
      const auto at = static_cast<size_t>(j);
      dp[at] = 0;
      for (int64_t e = 0; e < a.d; ++e) {
        dp[at] += dy[e] * v[e];
        dv[e] += p[at] * dy[e];
      }
      dot += p[at] * dp[at];
    }
    for (int64_t j = 0; j < a.t; ++j) {
      const auto at = static_cast<size_t>(j);
      const double ds = a.scale * p[at] * (dp[at] - dot) * slope[at];
      const auto* k = row(a.k, b, kv, j);
      auto* dk = row(g.dk, b, kv, j);
      for (int64_t e = 0; e < a.d; ++e) {
        dq[e] += ds * k[e];
        dk[e] += ds * q[e];
      }
    }
  });
}

// As transformers' modeling_rope_utils.py: _compute_llama3_parameters() and
// _compute_linear_scaling_rope_parameters().
static double frequency(const Frequencies& f, int64_t i) {
  const double pi = std::acos(-1),
               inv_freq =
                   1 / std::pow(f.theta, 2 * static_cast<double>(i) /
                                             static_cast<double>(f.dims));
  if (f.factor == 0) return inv_freq;
  if (f.original_positions == 0) return inv_freq / f.factor;
  const auto length = static_cast<double>(f.original_positions);
  const double wavelen = 2 * pi / inv_freq;
  if (wavelen < length / f.high_freq_factor) return inv_freq;
  if (wavelen > length / f.low_freq_factor) return inv_freq / f.factor;
  const double smooth = (length / wavelen - f.low_freq_factor) /
                        (f.high_freq_factor - f.low_freq_factor);
  return (1 - smooth) * inv_freq / f.factor + smooth * inv_freq;
}

void rotary(const Rotary& a) {
  const int64_t half = a.of.dims / 2;
  for (int64_t b = 0; b < a.b; ++b)
    for (int64_t h = 0; h < a.h; ++h)
      for (int64_t r = 0; r < a.s; ++r) {
        const int64_t position =
            a.positions ? a.positions[b * a.s + r] : r + a.position_offset;
        const auto* x = row(a.x, b, h, r);
        auto* y = row(a.out, b, h, r);
        for (int64_t i = 2 * half; i < a.d; ++i) y[i] = x[i];
        for (int64_t i = 0; i < half; ++i) {
          const double angle =
              static_cast<double>(position) * frequency(a.of, i);
          const double c = std::cos(angle);
          const double s = std::sin(angle) * (a.inverse ? -1 : 1);
          const double x1 = x[i], x2 = x[i + half];
          y[i] = x1 * c - x2 * s;
          y[i + half] = x2 * c + x1 * s;
        }
      }
}

void adamw(const AdamW& o, const OptimPart& part) {
  auto* p = static_cast<double*>(part.param);
  const auto* g = static_cast<const double*>(part.grad);
  auto *m = static_cast<double*>(part.m), *v = static_cast<double*>(part.v);
  const auto step = static_cast<double>(part.step);
  for (int64_t i = 0; i < part.n; ++i) {
    const double x = g[i] * (o.grad_scale * (o.clip ? *o.clip : 1));
    p[i] -= part.lr * part.weight_decay * p[i];
    m[i] = o.beta1 * m[i] + (1 - o.beta1) * x;
    v[i] = o.beta2 * v[i] + (1 - o.beta2) * x * x;
    const double m_hat = m[i] / (1 - std::pow(o.beta1, step));
    const double v_hat = v[i] / (1 - std::pow(o.beta2, step));
    p[i] -= part.lr * m_hat / (std::sqrt(v_hat) + o.eps);
  }
}

void sgd(const Sgd& o, const OptimPart& part) {
  auto* p = static_cast<double*>(part.param);
  const auto* g = static_cast<const double*>(part.grad);
  auto* buffer = static_cast<double*>(part.m);
  for (int64_t i = 0; i < part.n; ++i) {
    double d = g[i] * (o.grad_scale * (o.clip ? *o.clip : 1)) +
               part.weight_decay * p[i];
    if (buffer) {
      buffer[i] = o.momentum * buffer[i] + d;
      d = o.nesterov ? d + o.momentum * buffer[i] : buffer[i];
    }
    p[i] -= part.lr * d;
  }
}

double random(Distribution distribution, bool wide, uint64_t seed,
              uint64_t stream_id, uint64_t index, double p0, double p1) {
  const bool wide_words = wide && distribution != Distribution::kBernoulli;
  const Philox4 b = philox_block(seed, stream_id, index / (wide_words ? 2 : 4));
  auto word = [&](uint64_t i) -> uint64_t {
    return wide_words ? b.x[2 * i] | uint64_t{b.x[2 * i + 1]} << 32 : b.x[i];
  };
  const uint64_t at = index % (wide_words ? 2 : 4);
  switch (distribution) {
    case Distribution::kUniform: {
      const double u = wide ? static_cast<double>(word(at) >> 11) * 0x1p-53
                            : static_cast<double>(word(at) >> 8) * 0x1p-24;
      return p0 + u * (p1 - p0);
    }
    case Distribution::kNormal: {
      const uint64_t pair = at / 2 * 2;
      const double bits = wide ? 0x1p-53 : 0x1p-32;
      const int drop = wide ? 11 : 0;
      const double u = (static_cast<double>(word(pair) >> drop) + 1) * bits;
      const double angle =
          2 * M_PI * static_cast<double>(word(pair + 1) >> drop) * bits;
      return p0 + p1 * std::sqrt(-2 * std::log(u)) *
                      (index % 2 ? std::sin(angle) : std::cos(angle));
    }
    case Distribution::kBernoulli:
      return static_cast<double>(word(at)) < p0 * 0x1p32;
    default:
      fail("reference", "does not have this distribution");
  }
}

}  // namespace dtensor::kernels::reference
