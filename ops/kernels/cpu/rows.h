// Loops over one contiguous row, a register at a time. Private to ops/kernels.
//
// Callables get a reader `at`: at(p) is the register of row p at the current
// position, in the compute type; at(p, rest) has `rest` beyond the end.
#pragma once
#include <algorithm>
#include <cstdint>

#include "dtensor/ops/kernels/cpu/vec.h"

namespace dtensor::kernels::cpu {

struct AtFull {
  int64_t i;
  template <class S>
  Vec<compute_t<S>> operator()(const S* p, compute_t<S> = 0) const {
    return load(p + i);
  }
};
struct AtTail {
  int64_t i, m;
  template <class S>
  Vec<compute_t<S>> operator()(const S* p, compute_t<S> rest = 0) const {
    return load_n(p + i, m, rest);
  }
};

// out[i] = f(at) for n elements. f may read the row out.
template <class S, class F>
inline void each(int64_t n, S* out, F&& f) {
  constexpr int64_t w = Vec<compute_t<S>>::n;
  int64_t i = 0;
  for (; i + w <= n; i += w) store(out + i, f(AtFull{i}));
  if (i < n) store_n(out + i, f(AtTail{i, n - i}), n - i);
}

// Combines f(at) over the row. Beyond the end, f must give the operation's
// identity. Four registers accumulate, to hide latency.
template <class T, class F, class Op>
inline T combine(int64_t begin, int64_t end, T identity, F&& f, Op&& op) {
  using V = Vec<T>;
  constexpr int64_t w = V::n;
  V a(identity), b(identity), c(identity), d(identity);
  int64_t i = begin;
  for (; i + 4 * w <= end; i += 4 * w) {
    a = op(a, f(AtFull{i}));
    b = op(b, f(AtFull{i + w}));
    c = op(c, f(AtFull{i + 2 * w}));
    d = op(d, f(AtFull{i + 3 * w}));
  }
  for (; i + w <= end; i += w) a = op(a, f(AtFull{i}));
  if (i < end) b = op(b, f(AtTail{i, end - i}));
  return fold(op(op(a, b), op(c, d)), op);
}

// The sum of f(at): 64 partial sums (for f32) over pieces of 4096 elements,
// which are added in f64.
template <class T, class F>
inline double total(int64_t n, F&& f) {
  constexpr int64_t kPiece = 4096;
  double r = 0;
  for (int64_t i = 0; i < n; i += kPiece)
    r += static_cast<double>(
        combine<T>(i, std::min(n, i + kPiece), T(0), f,
                   [](Vec<T> x, Vec<T> y) { return x + y; }));
  return r;
}

template <class T>
inline constexpr T kLow = -std::numeric_limits<T>::infinity();

template <class S>
inline compute_t<S> row_maximum(int64_t n, const S* x) {
  using T = compute_t<S>;
  return combine<T>(
      0, n, kLow<T>, [&](auto at) { return at(x, kLow<T>); },
      [](Vec<T> x, Vec<T> y) { return max(x, y); });
}

// Sets `to` to exp(x - max) and returns its sum. `to` may be x.
template <class S>
inline compute_t<S> exponentials(int64_t n, const S* x, compute_t<S> max,
                                 compute_t<S>* to) {
  using T = compute_t<S>;
  // Stored and summed in one pass.
  double sum = 0;
  constexpr int64_t kPiece = 4096, w = Vec<T>::n;
  const Vec<T> m(max);
  for (int64_t b = 0; b < n; b += kPiece) {
    const int64_t end = std::min(n, b + kPiece);
    Vec<T> s0(0), s1(0);
    int64_t i = b;
    for (; i + 2 * w <= end; i += 2 * w) {
      const Vec<T> e0 = exp_softmax(load(x + i) - m);
      const Vec<T> e1 = exp_softmax(load(x + i + w) - m);
      store(to + i, e0);
      store(to + i + w, e1);
      s0 = s0 + e0;
      s1 = s1 + e1;
    }
    for (; i < end; i += w) {
      const int64_t left = std::min(w, end - i);
      const Vec<T> e = exp_softmax(load_n(x + i, left, kLow<T>) - m);
      store_n(to + i, e, left);
      s0 = s0 + e;
    }
    sum += static_cast<double>(cpu::sum(s0 + s1));
  }
  return static_cast<T>(sum);
}

}  // namespace dtensor::kernels::cpu
