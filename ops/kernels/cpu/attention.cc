// SPDX-License-Identifier: Apache-2.0
// Attention over blocks of queries and keys. The forward pass keeps a running
// maximum and sum, and the backward pass recomputes the scores, so that scratch
// does not grow with s times t.
#include "dtensor/ops/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "dtensor/ops/kernels/cpu/block_attention.h"
#include "dtensor/ops/kernels/cpu/gemm.h"
#include "dtensor/ops/kernels/cpu/leaf_gemm.h"
#include "dtensor/ops/kernels/cpu/loops.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "dtensor/ops/kernels/portable/rows.h"

namespace dtensor::kernels {
namespace {

using namespace cpu;

constexpr int64_t kQueries = 128;
constexpr int64_t kKeys = 256;

// The number of queries in a block. Smaller blocks skip more of a short causal
// triangle, and of a narrow window's edges.
int64_t queries(const Attention& a) {
  const int64_t keys = a.window ? std::min(a.window, a.t) : a.t;
  return std::min(a.causal && keys <= 2 * kKeys ? kQueries / 2 : kQueries, a.s);
}

// Hands out slices of this thread's scratch.
template <class T>
class Arena {
 public:
  explicit Arena(int64_t n) : p_(scratch<T>(kScratchAttention, n)) {}
  T* take(int64_t n) {
    T* r = p_;
    p_ += n;
    return r;
  }

 private:
  T* p_;
};

// The [s, d] matrix of one batch and head; null if x has no data (t may be 0).
template <class S>
const S* head(const HeadsIn& x, int64_t b, int64_t h) {
  return row_at(static_cast<const S*>(x.data), 1,
                b * x.strides[0] + h * x.strides[1]);
}
template <class S>
S* head(const HeadsOut& x, int64_t b, int64_t h) {
  return const_cast<S*>(head<S>(HeadsIn{x.data, x.strides}, b, h));
}

// Converts rows of storage type S to the compute type, times `scale`.
template <class S>
void scaled(int64_t rows, int64_t d, const S* x, int64_t stride,
            compute_t<S> scale, compute_t<S>* to) {
  const Vec<compute_t<S>> s(scale);
  for (int64_t r = 0; r < rows; ++r)
    each(d, to + r * d, [&](auto at) { return at(x + r * stride) * s; });
}
template <class S>
void store_scaled(int64_t rows, int64_t d, const compute_t<S>* x,
                  compute_t<S> scale, S* to, int64_t stride) {
  const Vec<compute_t<S>> s(scale);
  for (int64_t r = 0; r < rows; ++r)
    each(d, to + r * stride, [&](auto at) { return at(x + r * d) * s; });
}

// A [rows, d] operand in the compute type: its own memory if possible, else a
// copy in `to`.
template <class S>
Mat<const compute_t<S>> operand(int64_t rows, int64_t d, const S* x,
                                int64_t stride, compute_t<S>* to) {
  if constexpr (std::is_same_v<S, compute_t<S>>)
    if (stride == d) return {x, d, 1};
  scaled(rows, d, x, stride, 1, to);
  return {to, d, 1};
}

template <class S>
struct Core {
  using T = compute_t<S>;
  using V = Vec<T>;
  const Attention& a;

  int64_t kv(int64_t h) const {
    return a.kv_head.empty() ? h * a.hkv / a.hq
                             : a.kv_head[static_cast<size_t>(h)];
  }
  // The first key that any query from i0 on may attend to.
  int64_t key_begin(int64_t i0) const {
    return a.window
               ? std::clamp(i0 + a.query_offset + 1 - a.window, int64_t{0}, a.t)
               : 0;
  }
  // The end of the keys that any query before i1 may attend to.
  int64_t key_end(int64_t i1) const {
    return a.causal ? std::clamp(i1 + a.query_offset, int64_t{0}, a.t) : a.t;
  }
  // How many of the keys [j0, j0 + nk), counted from j0, causality lets query i
  // attend to.
  int64_t visible(int64_t i, int64_t j0, int64_t nk) const {
    if (!a.causal) return nk;
    return std::clamp(i + a.query_offset + 1 - j0, int64_t{0}, nk);
  }
  // How many of the first keys of [j0, j0 + nk) the window hides from query i.
  int64_t hidden(int64_t i, int64_t j0, int64_t nk) const {
    return a.window ? std::clamp(i + a.query_offset + 1 - a.window - j0,
                                 int64_t{0}, nk)
                    : 0;
  }
  // Limits n scores by the soft cap.
  void cap(int64_t n, T* score) const {
    if (a.soft_cap == 0) return;
    const V c(static_cast<T>(a.soft_cap)), part(static_cast<T>(1 / a.soft_cap));
    each(n, score, [&](auto at) { return c * tanh(at(score) * part); });
  }
  // Limits n scores by the soft cap. Then subtracts delta from n gradients of
  // capped scores, and multiplies them by the cap's derivative. Returns how
  // much of delta is still to be subtracted: all of it if there is no cap.
  T cap(int64_t n, T* score, T* dscore, T delta) const {
    if (a.soft_cap == 0) return delta;
    const V c(static_cast<T>(a.soft_cap)), part(static_cast<T>(1 / a.soft_cap));
    each_two(n, score, dscore, [&](auto at) {
      const V y = tanh(at(score) * part);
      return Two<V>{c * y, (at(dscore) - V(delta)) * (V(1) - y * y)};
    });
    return 0;
  }
  // Adds the mask to n scores of query i, starting at key j0.
  void add_mask(int64_t b, int64_t h, int64_t i, int64_t j0, int64_t n,
                T* score) const {
    if (!a.mask.data) return;
    const int64_t at = b * a.mask.strides[0] + h * a.mask.strides[1] +
                       i * a.mask.strides[2] + j0 * a.mask.strides[3];
    const int64_t step = a.mask.strides[3];
    if (a.mask_is_bool) {
      const auto* m = static_cast<const uint8_t*>(a.mask.data) + at;
      for (int64_t j = 0; j < n; ++j)
        score[j] = m[j * step] ? score[j] : kLow<T>;
      return;
    }
    const S* m = static_cast<const S*>(a.mask.data) + at;
    T buf[kKeys];
    const T* p = fetch(m, step, n, buf);
    each(n, score, [&](auto at) { return at(score) + at(p); });
  }

  // c = a b, or c += a b. With by_blocks, the sums are those of leaf_gemm.h.
  void product(int64_t m, int64_t n, int64_t k, Mat<const T> x, Mat<const T> y,
               Mat<T> to, bool accumulate) const {
    return a.by_blocks ? leaf_gemm<T>(m, n, k, x, y, to, accumulate)
                       : gemm2d<T>(m, n, k, x, y, to, accumulate);
  }
  // Computes the scores of nq queries (scaled, [nq, d]) and nk keys, as [nq,
  // nk]. The caller still has to cap them, to add the mask, and to exclude keys
  // that causality or the window hides.
  void scores(int64_t nq, int64_t nk, const T* q, Mat<const T> k,
              T* score) const {
    product(nq, nk, a.d, {q, a.d, 1}, k.transposed(), {score, nk, 1}, false);
  }
};

template <class S>
void forward(const AttentionForward& f) {
  using T = compute_t<S>;
  using V = Vec<T>;
  const Attention& a = f.of;
  auto* lse = static_cast<T*>(f.lse);
  const Core<S> core{a};
  const int64_t d = a.d, nq_max = queries(a);
  const int64_t nk_max = std::min(kKeys, a.t);
  const int64_t kv_size = (a.t * d + 15) / 16 * 16;
  Arena<T> arena(nq_max * (2 * d + nk_max) + 2 * kv_size + 2 * kQueries + 64);
  T* row_m = arena.take(kQueries);
  T* row_l = arena.take(kQueries);
  T* k_copy = arena.take(kv_size);
  T* v_copy = arena.take(kv_size);
  T* q = arena.take(nq_max * d);
  T* o = arena.take(nq_max * d);
  T* score = arena.take(nq_max * nk_max);

  auto block = [&](int64_t b, int64_t h, int64_t i0, int64_t nq, Mat<const T> k,
                   Mat<const T> v) {
    scaled(nq, d, head<S>(a.q, b, h) + i0 * a.q.strides[2], a.q.strides[2],
           static_cast<T>(a.scale), q);
    std::fill_n(row_m, nq, kLow<T>);
    std::fill_n(row_l, nq, T(0));
    const int64_t begin = core.key_begin(i0), end = core.key_end(i0 + nq);
    if (begin == end) std::fill_n(o, nq * d, T(0));
    for (int64_t j0 = begin; j0 < end; j0 += kKeys) {
      const int64_t nk = std::min(kKeys, end - j0);
      core.scores(nq, nk, q, {k.p + j0 * k.row, k.row, 1}, score);
      for (int64_t r = 0; r < nq; ++r) {
        T* const row = score + r * nk;
        const int64_t lo = core.hidden(i0 + r, j0, nk);
        const int64_t n = core.visible(i0 + r, j0, nk) - lo;
        T* const p = row + lo;
        core.cap(n, p);
        core.add_mask(b, h, i0 + r, j0 + lo, n, p);
        const T m = max_of(row_m[r], row_maximum(n, p));
        if (m == kLow<T>) {
          std::fill_n(row, nk, T(0));
          continue;
        }
        const T sum = static_cast<T>(stored_total(
            n, p, [&](auto at) { return exp_softmax(at(p) - m); }));
        std::fill(row, p, T(0));
        std::fill(p + n, row + nk, T(0));
        const T correction = std::exp(row_m[r] - m);
        row_l[r] = row_l[r] * correction + sum;
        row_m[r] = m;
        if (j0 > begin && correction != 1) {
          const V c(correction);
          each(d, o + r * d, [&](auto at) { return at(o + r * d) * c; });
        }
      }
      gemm2d<T>(nq, d, nk, {score, nk, 1}, {v.p + j0 * v.row, v.row, 1},
                {o, d, 1}, j0 > begin);
    }
    const int64_t os = f.out.strides[2];
    S* to = head<S>(f.out, b, h) + i0 * os;
    for (int64_t r = 0; r < nq; ++r) {
      const T l = row_l[r];
      lse[(b * a.hq + h) * a.s + i0 + r] =
          l == 0 ? kLow<T> : row_m[r] + std::log(l);
      store_scaled(1, d, o + r * d, l == 0 ? T(0) : T(1) / l, to + r * os, os);
    }
  };

  for (int64_t b = 0; b < a.b; ++b)
    for (int64_t g = 0; g < a.hkv; ++g) {
      const auto k =
          operand(a.t, d, head<S>(a.k, b, g), a.k.strides[2], k_copy);
      const auto v =
          operand(a.t, d, head<S>(a.v, b, g), a.v.strides[2], v_copy);
      for (int64_t h = 0; h < a.hq; ++h) {
        if (core.kv(h) != g) continue;
        for (int64_t i0 = 0; i0 < a.s; i0 += nq_max)
          block(b, h, i0, std::min(nq_max, a.s - i0), k, v);
      }
    }
}

template <class S>
void backward(const AttentionBackward& g) {
  using T = compute_t<S>;
  using V = Vec<T>;
  const Attention& a = g.of;
  const Core<S> core{a};
  constexpr bool narrows = !std::is_same_v<S, T>;
  const int64_t d = a.d, nq_max = queries(a);
  const int64_t nk_max = std::min(kKeys, a.t);
  const int64_t kv_size = (a.t * d + 15) / 16 * 16;
  Arena<T> arena(nq_max * (3 * d + 2 * nk_max) + 4 * kv_size + 64);
  T* k_copy = arena.take(kv_size);
  T* v_copy = arena.take(kv_size);
  T* dk_sum = arena.take(kv_size);
  T* dv_sum = arena.take(kv_size);
  T* q = arena.take(nq_max * d);
  T* dq = arena.take(nq_max * d);
  T* do_copy = arena.take(nq_max * d);
  T* score = arena.take(nq_max * nk_max);
  T* dscore = arena.take(nq_max * nk_max);
  T delta[kQueries];
  const T scale = static_cast<T>(a.scale);

  auto block = [&](int64_t b, int64_t h, int64_t i0, int64_t nq, Mat<const T> k,
                   Mat<const T> v, Mat<T> dk, Mat<T> dv) {
    scaled(nq, d, head<S>(a.q, b, h) + i0 * a.q.strides[2], a.q.strides[2],
           scale, q);
    const int64_t dos = g.dout.strides[2];
    const S* dout = head<S>(g.dout, b, h) + i0 * dos;
    const S* out = head<S>(g.out, b, h) + i0 * g.out.strides[2];
    const T* lse = static_cast<const T*>(g.lse) + (b * a.hq + h) * a.s + i0;
    for (int64_t r = 0; r < nq; ++r) {
      const S* x = dout + r * dos;
      const S* y = out + r * g.out.strides[2];
      const auto products = [&](auto at) { return at(x) * at(y); };
      delta[r] = static_cast<T>(a.by_blocks ? leaf_total<T>(d, products)
                                            : total<T>(d, products));
    }
    const Mat<const T> dy = operand(nq, d, dout, dos, do_copy);
    const int64_t begin = core.key_begin(i0), end = core.key_end(i0 + nq);
    if (begin == end) std::fill_n(dq, nq * d, T(0));
    for (int64_t j0 = begin; j0 < end; j0 += kKeys) {
      const int64_t nk = std::min(kKeys, end - j0);
      const Mat<const T> kj = {k.p + j0 * k.row, k.row, 1};
      core.scores(nq, nk, q, kj, score);
      core.product(nq, nk, d, dy, {v.p + j0 * v.row, 1, v.row}, {dscore, nk, 1},
                   false);
      for (int64_t r = 0; r < nq; ++r) {
        const int64_t lo = core.hidden(i0 + r, j0, nk);
        const int64_t n =
            lse[r] == kLow<T> ? 0 : core.visible(i0 + r, j0, nk) - lo;
        T* const p = score + r * nk + lo;
        T* const ds = dscore + r * nk + lo;
        const V l(lse[r]);
        const V c(core.cap(n, p, ds, delta[r]));
        core.add_mask(b, h, i0 + r, j0 + lo, n, p);
        each(n, p, [&](auto at) { return exp_softmax(at(p) - l); });
        each(n, ds, [&](auto at) { return at(p) * (at(ds) - c); });
        for (T* const row : {p, ds}) {
          std::fill_n(row - lo, lo, T(0));
          std::fill_n(row + n, nk - lo - n, T(0));
        }
      }
      core.product(nk, d, nq, {score, 1, nk}, dy,
                   {dv.p + j0 * dv.row, dv.row, 1}, true);
      core.product(nk, d, nq, {dscore, 1, nk}, {q, d, 1},
                   {dk.p + j0 * dk.row, dk.row, 1}, true);
      core.product(nq, d, nk, {dscore, nk, 1}, kj, {dq, d, 1}, j0 > begin);
    }
    store_scaled(nq, d, dq, scale, head<S>(g.dq, b, h) + i0 * g.dq.strides[2],
                 g.dq.strides[2]);
  };

  // Returns cleared memory for the sums of a head's gradient: p itself if its
  // type and strides allow, else `sum`.
  auto cleared = [&](S* p, int64_t stride, T* sum) -> Mat<T> {
    T* to = sum;
    if constexpr (!narrows)
      if (stride == d) to = p;
    std::fill_n(to, a.t * d, T(0));
    return {to, d, 1};
  };

  for (int64_t b = 0; b < a.b; ++b)
    for (int64_t kvh = 0; kvh < a.hkv; ++kvh) {
      const auto k =
          operand(a.t, d, head<S>(a.k, b, kvh), a.k.strides[2], k_copy);
      const auto v =
          operand(a.t, d, head<S>(a.v, b, kvh), a.v.strides[2], v_copy);
      S* dk_head = head<S>(g.dk, b, kvh);
      S* dv_head = head<S>(g.dv, b, kvh);
      const Mat<T> dk = cleared(dk_head, g.dk.strides[2], dk_sum);
      const Mat<T> dv = cleared(dv_head, g.dv.strides[2], dv_sum);
      for (int64_t h = 0; h < a.hq; ++h) {
        if (core.kv(h) != kvh) continue;
        for (int64_t i0 = 0; i0 < a.s; i0 += nq_max)
          block(b, h, i0, std::min(nq_max, a.s - i0), k, v, dk, dv);
      }
      if (dk.p == dk_sum)
        store_scaled(a.t, d, dk_sum, T(1), dk_head, g.dk.strides[2]);
      if (dv.p == dv_sum)
        store_scaled(a.t, d, dv_sum, T(1), dv_head, g.dv.strides[2]);
    }
}

}  // namespace

DT_KERNEL(AttentionForward)
void run(Stream, const AttentionForward& a) {
  if (a.of.by_blocks) return block_attention(a);
  visit_float(a.of.type, "attention", [&]<class S>() { forward<S>(a); });
}

DT_KERNEL(AttentionBackward)
void run(Stream, const AttentionBackward& a) {
  visit_float(a.of.type, "attention", [&]<class S>() { backward<S>(a); });
}

}  // namespace dtensor::kernels
