// SPDX-License-Identifier: Apache-2.0
// Attention with a running maximum and sum in the forward pass, and recomputed
// scores in the backward pass, so that no [s, t] array is stored. A row of
// lanes has a few queries, which go through the keys in blocks: each lane takes
// one key of the block, for all of these queries. For the gradients of k and v,
// the roles of queries and keys are exchanged.
#include "dtensor/ops/kernels/attention.h"

#include <algorithm>
#include <cstring>

#include "dtensor/ops/functions/math.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/pack.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::compute_t;
using portable::each;
using portable::lowest;
using portable::Max;
using portable::rounded;
using portable::Row;
using portable::rows;
using portable::Scratch;
using portable::short_rows;
using portable::Sum;
using portable::widened;

constexpr int64_t kBlock = 32;

// One value for each of a row's W queries (or keys), side by side.
template <class T, int W>
struct alignas(std::min<size_t>(16, sizeof(T) * W)) Few {
  T of[W];
};

// Heads (operands.h) with a typed address, and without the stride of 1.
template <class P>
struct HeadsOf {
  P* p;
  int64_t b, h, s;
  template <class Untyped>
  HeadsOf(const Heads<Untyped>& x)
      : p(static_cast<P*>(x.data)),
        b(x.strides[0]),
        h(x.strides[1]),
        s(x.strides[2]) {}
  DT_HD P* row(int64_t ib, int64_t ih, int64_t is) const {
    return p + ib * b + ih * h + is * s;
  }
};

template <class S>
struct Problem {
  using T = compute_t<S>;
  Attention a;
  const int* kv_head;  // in device memory; or null
  HeadsOf<const S> q, k, v;
  T scale, soft_cap;

  Problem(const Attention& a, const int* kv_head)
      : a(a),
        kv_head(kv_head),
        q(a.q),
        k(a.k),
        v(a.v),
        scale(static_cast<T>(a.scale)),
        soft_cap(static_cast<T>(a.soft_cap)) {}

  DT_HD int64_t kv(int64_t h) const {
    return kv_head ? kv_head[h] : h * a.hkv / a.hq;
  }
  // The first key that the window lets any query from i on attend to.
  DT_HD int64_t key_begin(int64_t i) const {
    const int64_t begin = i + a.query_offset + 1 - a.window;
    return !a.window || begin < 0 ? 0 : begin;
  }
  // The end of the keys that causality lets any query before i attend to.
  DT_HD int64_t key_end(int64_t i) const {
    const int64_t end = i + a.query_offset;
    return !a.causal || end > a.t ? a.t : end < 0 ? 0 : end;
  }
  // The first query that may attend to key j.
  DT_HD int64_t query_begin(int64_t j) const {
    return a.causal && j > a.query_offset ? j - a.query_offset : 0;
  }
  // The end of the queries that the window lets attend to any key before j.
  DT_HD int64_t query_end(int64_t j) const {
    const int64_t end = j - 1 - a.query_offset + a.window;
    return !a.window || end > a.s ? a.s : end;
  }
  DT_HD bool sees(int64_t i, int64_t j) const {
    const int64_t position = i + a.query_offset;
    return !a.causal ||
           (j <= position && (!a.window || j > position - a.window));
  }
  // The score after the soft cap.
  DT_HD T capped(T score) const {
    return soft_cap == 0 ? score : soft_cap * fn::tanh(score / soft_cap);
  }
  // The derivative of capped(), from the value `capped` that it returned.
  DT_HD T slope(T capped) const {
    if (soft_cap == 0) return 1;
    const T y = capped / soft_cap;
    return 1 - y * y;
  }
  // The capped score with the mask added; -inf if query i may not see key j.
  DT_HD T masked(int64_t b, int64_t h, int64_t i, int64_t j, T score) const {
    if (!sees(i, j)) return lowest<T>();
    if (!a.mask.data) return score;
    const int64_t at = b * a.mask.strides[0] + h * a.mask.strides[1] +
                       i * a.mask.strides[2] + j * a.mask.strides[3];
    if (a.mask_is_bool)
      return static_cast<const uint8_t*>(a.mask.data)[at] ? score : lowest<T>();
    return score + widened(static_cast<const S*>(a.mask.data)[at]);
  }
};

// Loads W rows of an operand, from `from` on and times `scale`, into
// few[e].of[w]; zeros from row n on.
template <class S, class T, int W>
DT_HD void fetch(Row& row, int64_t d, int64_t n, const S* from, int64_t stride,
                 T scale, Few<T, W>* few) {
  row.each(d * W, [&](int64_t i) {
    const int64_t w = i / d, e = i % d;
    few[e].of[w] = w < n ? widened(from[w * stride + e]) * scale : T(0);
  });
}
template <class S, class T, int W>
DT_HD void store(Row& row, int64_t d, int64_t n, const Few<T, W>* few, T scale,
                 S* to, int64_t stride) {
  row.each(d * n, [&](int64_t i) {
    const int64_t w = i / d, e = i % d;
    to[w * stride + e] = rounded<S>(few[e].of[w] * scale);
  });
}
template <class T, int W>
DT_HD void clear(Row& row, int64_t d, Few<T, W>* few) {
  row.each(d, [&](int64_t e) { few[e] = {}; });
}

// sums[w] = the sum over e of x[e] * few[e].of[w].
template <class S, class T, int W>
DT_HD void products(int64_t d, const S* x, const Few<T, W>* few, T (&sums)[W]) {
  constexpr int P = portable::kPack<S>;
  for (T& sum : sums) sum = 0;
  const auto add = [&](T value, const Few<T, W>& y) {
    for (int w = 0; w < W; ++w) sums[w] += value * y.of[w];
  };
  int64_t e = 0;
  if (portable::aligned(x, P))
    for (; e + P <= d; e += P) {
      const portable::Pack<S, P> pack = portable::load<P>(x + e);
      for (int p = 0; p < P; ++p) add(widened(pack.v[p]), few[e + p]);
    }
  for (; e < d; ++e) add(widened(x[e]), few[e]);
}

// Adds to each sums[w] the sum of x[j * stride] * few[j].of[w] over the n
// elements j of a block.
template <class S, class T, int W>
DT_HD void add_block(int64_t n, const S* x, int64_t stride,
                     const Few<T, W>* few, Few<T, W>& sums) {
  Few<T, W> sum = sums;
  for (int64_t j = 0; j < n; ++j) {
    const T value = widened(x[j * stride]);
    const Few<T, W> y = few[j];
    for (int w = 0; w < W; ++w) sum.of[w] += value * y.of[w];
  }
  sums = sum;
}

DT_HD int64_t at_most(int64_t n, int64_t most) { return n < most ? n : most; }

template <int W, class S, class T = compute_t<S>>
void forward(Stream s, const Problem<S>& problem, HeadsOf<S> out, T* lse) {
  using F = Few<T, W>;
  const Attention& a = problem.a;
  const int64_t blocks = (a.s + W - 1) / W;
  short_rows(
      s, a.b * a.hq * blocks,
      DT_BODY(Row & row, int64_t r) {
        const auto& a = problem.a;
        const int64_t i0 = r % blocks * W, h = r / blocks % a.hq,
                      b = r / blocks / a.hq, nq = at_most(a.s - i0, W),
                      g = problem.kv(h), end = problem.key_end(i0 + nq);
        F* const q = row.fast<F>();
        F* const o = q + a.d;
        F* const p = o + a.d;
        F* const max = p + kBlock;
        F* const sum = max + 1;
        F* const factor = sum + 1;  // rescales sums to the new maximum
        fetch(row, a.d, nq, problem.q.row(b, h, i0), problem.q.s, problem.scale,
              q);
        clear(row, a.d, o);
        row.each(W, [&](int64_t w) {
          max->of[w] = lowest<T>();
          sum->of[w] = 0;
        });
        for (int64_t j0 = problem.key_begin(i0); j0 < end; j0 += kBlock) {
          const int64_t n = at_most(end - j0, kBlock);
          row.each(n, [&](int64_t j) {
            T score[W];
            products(a.d, problem.k.row(b, g, j0 + j), q, score);
            for (int w = 0; w < W; ++w)
              p[j].of[w] = w < nq ? problem.masked(b, h, i0 + w, j0 + j,
                                                   problem.capped(score[w]))
                                  : lowest<T>();
          });
          row.each(W, [&](int64_t w) {
            T most = max->of[w];
            for (int64_t j = 0; j < n; ++j) most = Max()(most, p[j].of[w]);
            factor->of[w] =
                most == max->of[w] ? T(1) : fn::exp(max->of[w] - most);
            max->of[w] = most;
          });
          row.each(n, [&](int64_t j) {
            for (int w = 0; w < W; ++w) {
              const T most = max->of[w];
              p[j].of[w] =
                  most == lowest<T>() ? T(0) : fn::exp(p[j].of[w] - most);
            }
          });
          row.each(W, [&](int64_t w) {
            T all = sum->of[w] * factor->of[w];
            for (int64_t j = 0; j < n; ++j) all += p[j].of[w];
            sum->of[w] = all;
          });
          row.each(a.d, [&](int64_t e) {
            for (int w = 0; w < W; ++w) o[e].of[w] *= factor->of[w];
            add_block(n, problem.v.row(b, g, j0) + e, problem.v.s, p, o[e]);
          });
        }
        row.each(nq, [&](int64_t w) {
          const T all = sum->of[w];
          lse[(b * a.hq + h) * a.s + i0 + w] =
              all == 0 ? lowest<T>() : max->of[w] + fn::log(all);
        });
        row.each(a.d, [&](int64_t e) {
          for (int w = 0; w < W; ++w)
            o[e].of[w] = sum->of[w] == 0 ? T(0) : o[e].of[w] / sum->of[w];
        });
        store(row, a.d, nq, o, T(1), out.row(b, h, i0), out.s);
      },
      (2 * a.d + kBlock + 3) * static_cast<int64_t>(sizeof(F)));
}

template <class S>
struct Gradient {
  using T = compute_t<S>;
  Problem<S> problem;
  HeadsOf<const S> out, dout;
  HeadsOf<S> dq, dk, dv;
  const T* lse;
  const T* delta;  // for each query, the sum of out * dout

  Gradient(const Problem<S>& problem, const AttentionBackward& g,
           const T* delta)
      : problem(problem),
        out(g.out),
        dout(g.dout),
        dq(g.dq),
        dk(g.dk),
        dv(g.dv),
        lse(static_cast<const T*>(g.lse)),
        delta(delta) {}

  DT_HD int64_t query(int64_t b, int64_t h, int64_t i) const {
    return (b * problem.a.hq + h) * problem.a.s + i;
  }
  // The probability that query i gives to key j, from the capped score.
  DT_HD T probability(int64_t b, int64_t h, int64_t i, int64_t j,
                      T score) const {
    const T all = lse[query(b, h, i)];
    return all == lowest<T>() || !problem.sees(i, j)
               ? T(0)
               : fn::exp(problem.masked(b, h, i, j, score) - all);
  }
  // The gradient of the score before the cap, from the capped score, the
  // probability p and its gradient dp.
  DT_HD T dscore(int64_t b, int64_t h, int64_t i, int64_t j, T capped, T p,
                 T dp) const {
    return problem.sees(i, j)
               ? p * (dp - delta[query(b, h, i)]) * problem.slope(capped)
               : T(0);
  }
};

template <class S, class T = compute_t<S>>
void sum_delta(Stream s, const Gradient<S>& g, T* delta) {
  const Attention& a = g.problem.a;
  rows(
      s, a.b * a.hq * a.s, a.d, DT_BODY(Row & row, int64_t r) {
        const auto& a = g.problem.a;
        const int64_t i = r % a.s, h = r / a.s % a.hq, b = r / a.s / a.hq;
        const T sum = row.reduce(
            a.d, T(0), Sum(),
            [](int64_t, S x, S y) { return widened(x) * widened(y); },
            g.out.row(b, h, i), g.dout.row(b, h, i));
        row.each(1, [&](int64_t) { delta[r] = sum; });
      });
}

template <int W, class S, class T = compute_t<S>>
void backward_q(Stream s, const Gradient<S>& gradient) {
  using F = Few<T, W>;
  const Attention& a = gradient.problem.a;
  const int64_t blocks = (a.s + W - 1) / W;
  short_rows(
      s, a.b * a.hq * blocks,
      DT_BODY(Row & row, int64_t r) {
        const auto& problem = gradient.problem;
        const auto& a = problem.a;
        const int64_t i0 = r % blocks * W, h = r / blocks % a.hq,
                      b = r / blocks / a.hq, nq = at_most(a.s - i0, W),
                      g = problem.kv(h), end = problem.key_end(i0 + nq);
        F* const q = row.fast<F>();
        F* const dy = q + a.d;
        F* const dq = dy + a.d;
        F* const ds = dq + a.d;
        fetch(row, a.d, nq, problem.q.row(b, h, i0), problem.q.s, problem.scale,
              q);
        fetch(row, a.d, nq, gradient.dout.row(b, h, i0), gradient.dout.s, T(1),
              dy);
        clear(row, a.d, dq);
        for (int64_t j0 = problem.key_begin(i0); j0 < end; j0 += kBlock) {
          const int64_t n = at_most(end - j0, kBlock);
          row.each(n, [&](int64_t j) {
            T score[W], dp[W];
            products(a.d, problem.k.row(b, g, j0 + j), q, score);
            products(a.d, problem.v.row(b, g, j0 + j), dy, dp);
            for (int w = 0; w < W; ++w) {
              const int64_t i = i0 + w;
              ds[j].of[w] = 0;
              if (w >= nq) continue;
              const T x = problem.capped(score[w]);
              const T p = gradient.probability(b, h, i, j0 + j, x);
              ds[j].of[w] = gradient.dscore(b, h, i, j0 + j, x, p, dp[w]);
            }
          });
          row.each(a.d, [&](int64_t e) {
            add_block(n, problem.k.row(b, g, j0) + e, problem.k.s, ds, dq[e]);
          });
        }
        store(row, a.d, nq, dq, problem.scale, gradient.dq.row(b, h, i0),
              gradient.dq.s);
      },
      (3 * a.d + kBlock) * static_cast<int64_t>(sizeof(F)));
}

template <int W, class S, class T = compute_t<S>>
void backward_kv(Stream s, const Gradient<S>& gradient) {
  using F = Few<T, W>;
  const Attention& a = gradient.problem.a;
  const int64_t blocks = (a.t + W - 1) / W;
  short_rows(
      s, a.b * a.hkv * blocks,
      DT_BODY(Row & row, int64_t r) {
        const auto& problem = gradient.problem;
        const auto& a = problem.a;
        const int64_t j0 = r % blocks * W, g = r / blocks % a.hkv,
                      b = r / blocks / a.hkv, nk = at_most(a.t - j0, W),
                      end = problem.query_end(j0 + nk);
        F* const k = row.fast<F>();
        F* const v = k + a.d;
        F* const dk = v + a.d;
        F* const dv = dk + a.d;
        F* const p = dv + a.d;
        F* const ds = p + kBlock;
        fetch(row, a.d, nk, problem.k.row(b, g, j0), problem.k.s, problem.scale,
              k);
        fetch(row, a.d, nk, problem.v.row(b, g, j0), problem.v.s, T(1), v);
        clear(row, a.d, dk);
        clear(row, a.d, dv);
        for (int64_t h = 0; h < a.hq; ++h) {
          if (problem.kv(h) != g) continue;
          for (int64_t i0 = problem.query_begin(j0); i0 < end; i0 += kBlock) {
            const int64_t n = at_most(end - i0, kBlock);
            row.each(n, [&](int64_t at) {
              const int64_t i = i0 + at;
              T score[W], dp[W];
              products(a.d, problem.q.row(b, h, i), k, score);
              products(a.d, gradient.dout.row(b, h, i), v, dp);
              for (int w = 0; w < W; ++w) {
                p[at].of[w] = ds[at].of[w] = 0;
                if (w >= nk) continue;
                const T x = problem.capped(score[w]);
                const T y = gradient.probability(b, h, i, j0 + w, x);
                p[at].of[w] = y;
                ds[at].of[w] = gradient.dscore(b, h, i, j0 + w, x, y, dp[w]);
              }
            });
            row.each(a.d, [&](int64_t e) {
              add_block(n, problem.q.row(b, h, i0) + e, problem.q.s, ds, dk[e]);
              add_block(n, gradient.dout.row(b, h, i0) + e, gradient.dout.s, p,
                        dv[e]);
            });
          }
        }
        store(row, a.d, nk, dk, problem.scale, gradient.dk.row(b, g, j0),
              gradient.dk.s);
        store(row, a.d, nk, dv, T(1), gradient.dv.row(b, g, j0), gradient.dv.s);
      },
      (4 * a.d + 2 * kBlock) * static_cast<int64_t>(sizeof(F)));
}

// A piece of Attention::kv_head that fits into a kernel's arguments.
struct SomeHeads {
  static constexpr int64_t kMost = 256;
  int head[kMost];
};
// Copies Attention::kv_head, piece by piece, from host memory to device memory.
// The copy exists as long as this object.
class KvHeads {
 public:
  KvHeads(Stream s, const Attention& a)
      : heads_(s, static_cast<int64_t>(a.kv_head.size_bytes())),
        given_(!a.kv_head.empty()) {
    constexpr int64_t kMost = SomeHeads::kMost;
    for (int64_t h = 0; given_ && h < a.hq; h += kMost)
      put(s, a.kv_head.data() + h, std::min(a.hq - h, kMost),
          heads_.as<int>() + h);
  }
  const int* data() { return given_ ? heads_.as<int>() : nullptr; }

  static void put(Stream s, const int* heads, int64_t n, int* to) {
    SomeHeads some = {};
    std::copy_n(heads, n, some.head);
    each(
        s, n, DT_BODY(int64_t i) { to[i] = some.head[i]; });
  }

 private:
  Scratch heads_;
  const bool given_;
};

// kFew: the number of queries (or keys) of a row; they fill 32 bytes. A row has
// only one if heads exceed kLongHead, because fast memory would not hold more.
template <class S>
constexpr int kFew = 32 / sizeof(compute_t<S>);
constexpr int64_t kLongHead = 512;

template <class S, class T = compute_t<S>>
void run_forward(Stream s, const AttentionForward& a) {
  KvHeads kv(s, a.of);
  const Problem<S> problem(a.of, kv.data());
  const HeadsOf<S> out(a.out);
  auto* lse = static_cast<T*>(a.lse);
  if (a.of.d <= kLongHead)
    forward<kFew<S>>(s, problem, out, lse);
  else
    forward<1>(s, problem, out, lse);
}

template <class S, class T = compute_t<S>>
void run_backward(Stream s, const AttentionBackward& g) {
  const Attention& a = g.of;
  KvHeads kv(s, a);
  Scratch delta(s, a.b * a.hq * a.s * static_cast<int64_t>(sizeof(T)));
  const Gradient<S> gradient(Problem<S>(a, kv.data()), g, delta.as<T>());
  sum_delta(s, gradient, delta.as<T>());
  if (a.d <= kLongHead) {
    backward_q<kFew<S>>(s, gradient);
    backward_kv<kFew<S>>(s, gradient);
  } else {
    backward_q<1>(s, gradient);
    backward_kv<1>(s, gradient);
  }
}

}  // namespace

DT_KERNEL(AttentionForward)
void run(Stream s, const AttentionForward& a) {
  visit_float(a.of.type, "attention", [&]<class S>() { run_forward<S>(s, a); });
}

DT_KERNEL(AttentionBackward)
void run(Stream s, const AttentionBackward& a) {
  visit_float(a.of.type, "attention",
              [&]<class S>() { run_backward<S>(s, a); });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
