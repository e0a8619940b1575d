// SPDX-License-Identifier: Apache-2.0
// Attention to pages of keys and values. A few queries read each key and value
// once, in place. Many queries of one request share copies of blocks of keys
// and values, and use matrix products.
#include "dtensor/ops/kernels/paged_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "dtensor/ops/kernels/cpu/block_attention.h"
#include "dtensor/ops/kernels/cpu/dots.h"
#include "dtensor/ops/kernels/cpu/gemm.h"
#include "dtensor/ops/kernels/cpu/loops.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "dtensor/ops/kernels/portable/rows.h"

namespace dtensor::kernels {
namespace {

using namespace cpu;

constexpr int64_t kKeys = 256;  // in a block
constexpr int64_t kRows = 128;  // of a product (heads * queries), if possible
// For up to this many queries of a request, it is faster not to copy the keys.
constexpr int64_t kFewQueries = 4;
// For each r < R: o[r] += the sum over i < K of p[r, i] * v[i], in the order of
// i.
template <int R, int K, class S, class T = compute_t<S>>
void add_values(int64_t d, const T* p, int64_t step, const S* v, int64_t stride,
                T* o) {
  using V = Vec<T>;
  const auto add = [&](auto get, auto put) {
    V value[K];
#pragma GCC unroll 4
    for (int i = 0; i < K; ++i) value[i] = get(v + i * stride);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      V sum = get(o + r * d);
#pragma GCC unroll 4
      for (int i = 0; i < K; ++i) sum = fma(V(p[r * step + i]), value[i], sum);
      put(o + r * d, sum);
    }
  };
  int64_t e = 0;
  for (; e + V::n <= d; e += V::n)
    add([e](const auto* x) { return load(x + e); },
        [e](T* x, V y) { store(x + e, y); });
  if (e < d)
    add([e, d](const auto* x) { return load_n(x + e, d - e); },
        [e, d](T* x, V y) { store_n(x + e, y, d - e); });
}

template <class S>
class Paged {
  using T = compute_t<S>;
  using V = Vec<T>;

 public:
  explicit Paged(const PagedAttention& a)
      : a_(a), scale_(static_cast<T>(a.scale)) {}

  void run() {
    const int64_t d = a_.d;
    // Without copies, a query has a row for each head; with copies, only for
    // the heads that share keys.
    const int64_t rows = std::max(a_.hq * kFewQueries, kRows + a_.hq);
    T* at = scratch<T>(kScratchAttention,
                       rows * (2 * d + kKeys + 3) + 2 * kKeys * d);
    const auto take = [&](int64_t n) {
      T* const from = at;
      at += n;
      return from;
    };
    q_ = take(rows * d);
    o_ = take(rows * d);
    score_ = take(rows * kKeys);
    max_ = take(rows);
    sum_ = take(rows);
    k_ = take(kKeys * d);
    v_ = take(kKeys * d);
    for (int64_t i = 0, n; i < a_.t; i += n) {
      n = 1;
      while (i + n < a_.t && a_.row[i + n] == a_.row[i]) ++n;
      if (n <= kFewQueries)
        block(i, n, 0, a_.hq, false);
      else
        for (int64_t h = 0, heads; h < a_.hq; h += heads) {
          heads = sharing(h);
          const int64_t most = std::max<int64_t>(1, kRows / heads);
          for (int64_t j = 0; j < n; j += most)
            block(i + j, std::min(most, n - j), h, heads, true);
        }
    }
  }

 private:
  // Keys [j, j + n) of a block, in consecutive slots from `slot` on, and at
  // positions from `position` on. A block has only keys that exist.
  struct Piece {
    int64_t j, position, slot, n;
  };
  // Makes a block of a request's keys from position p on. Returns the position
  // at which the next block begins.
  int64_t gather(int64_t request, int64_t p, int64_t end) {
    pieces_.clear();
    for (keys_ = 0; p < end && keys_ < kKeys;) {
      const int64_t slot = a_.slot(request, p),
                    n = std::min(
                        {end - p, a_.page - p % a_.page, kKeys - keys_});
      if (slot >= 0) pieces_.push_back({keys_, p, slot, n});
      if (slot >= 0) keys_ += n;
      p += n;
    }
    return p;
  }
  // The number of the block's keys that are before a position.
  int64_t before(int64_t position) const {
    for (const Piece& x : pieces_)
      if (position < x.position + x.n)
        return x.j + std::max<int64_t>(position - x.position, 0);
    return keys_;
  }
  // The number of heads from h on that use the head of keys that h uses.
  int64_t sharing(int64_t h) const {
    int64_t n = 1;
    while (h + n < a_.hq && a_.groups.kv_head(h + n) == a_.groups.kv_head(h))
      ++n;
    return n;
  }
  const S* key(const HeadsIn& x, int64_t head, int64_t slot) const {
    return static_cast<const S*>(x.data) + head * x.strides[1] +
           slot * x.strides[2];
  }

  // Computes queries [i0, i0 + nq) of a request for heads [h0, h0 + heads). Row
  // h * nq + i is for query i of head h, both counted from 0 in these ranges.
  // With `copies`, keys and values are copied, and all these heads must use the
  // same head of keys. Without, the range must contain all heads.
  void block(int64_t i0, int64_t nq, int64_t h0, int64_t heads, bool copies) {
    const int64_t d = a_.d, rows = heads * nq, request = a_.row[i0];
    int64_t begin = a_.pages_each * a_.page, end = 0;
    for (int64_t i = i0; i < i0 + nq; ++i)
      if (a_.end(i) > 0) {
        begin = std::min(begin, a_.begin(i));
        end = std::max(end, a_.end(i));
      }
    for (int64_t r = 0; r < rows; ++r) {
      const S* from = static_cast<const S*>(a_.q.data) +
                      (h0 + r / nq) * a_.q.strides[1] +
                      (i0 + r % nq) * a_.q.strides[2];
      each(d, q_ + r * d, [&](auto at) { return at(from) * V(scale_); });
    }
    std::fill_n(o_, rows * d, T(0));
    std::fill_n(max_, rows, kLow<T>);
    std::fill_n(sum_, rows, T(0));
    for (int64_t p = begin; p < end;) {
      p = gather(request, p, end);
      if (keys_ == 0) break;
      if (copies)
        copied_scores(rows, a_.groups.kv_head(h0));
      else
        read_scores(nq);
      for (int64_t r = 0; r < rows; ++r) exponentials(i0 + r % nq, r);
      if (copies)
        gemm2d<T>(rows, d, keys_, {score_, keys_, 1}, {v_, d, 1}, {o_, d, 1},
                  true);
      else
        read_values(nq);
    }
    for (int64_t r = 0; r < rows; ++r) {
      S* to = static_cast<S*>(a_.out.data) + (h0 + r / nq) * a_.out.strides[1] +
              (i0 + r % nq) * a_.out.strides[2];
      const V by(sum_[r] == 0 ? T(0) : 1 / sum_[r]);
      each(d, to, [&](auto at) { return at(o_ + r * d) * by; });
      if (a_.lse)
        static_cast<T*>(a_.lse)[(h0 + r / nq) * a_.t + i0 + r % nq] =
            max_[r] + std::log(sum_[r]);
    }
  }

  void copied_scores(int64_t rows, int64_t g) {
    const int64_t d = a_.d;
    for (const Piece& x : pieces_)
      for (int64_t i = 0; i < x.n; ++i) {
        const S *k = key(a_.k, g, x.slot + i), *v = key(a_.v, g, x.slot + i);
        each(d, k_ + (x.j + i) * d, [&](auto at) { return at(k); });
        each(d, v_ + (x.j + i) * d, [&](auto at) { return at(v); });
      }
    gemm2d<T>(rows, keys_, d, {q_, d, 1}, {k_, 1, d}, {score_, keys_, 1},
              false);
    cap(rows * keys_);
  }
  void read_scores(int64_t nq) {
    tiles(nq, a_.k, [&]<int R, int K>(int64_t r, int64_t j, const S* k) {
      dots<R, K>(a_.d, q_ + r * a_.d, a_.d, k, a_.k.strides[2],
                 score_ + r * keys_ + j, keys_);
    });
    cap(a_.hq * nq * keys_);
  }
  void read_values(int64_t nq) {
    tiles(nq, a_.v, [&]<int R, int K>(int64_t r, int64_t j, const S* v) {
      add_values<R, K>(a_.d, score_ + r * keys_ + j, keys_, v, a_.v.strides[2],
                       o_ + r * a_.d);
    });
  }
  // Calls fn.template operator()<R, K>(r, j, x) for R rows from r on, which use
  // one head of keys, and K keys from j on, at x; in the order of memory.
  template <class Fn>
  void tiles(int64_t nq, const HeadsIn& x, Fn&& fn) const {
    for (const Piece& piece : pieces_)
      by<kTileKeys>(piece.n, [&]<int K>(int64_t i) {
        for (int64_t h = 0, heads; h < a_.hq; h += heads) {
          heads = sharing(h);
          const S* from = key(x, a_.groups.kv_head(h), piece.slot + i);
          by<kTileRows>(heads * nq, [&]<int R>(int64_t r) {
            fn.template operator()<R, K>(h * nq + r, piece.j + i, from);
          });
        }
      });
  }
  void cap(int64_t n) {
    if (a_.soft_cap == 0) return;
    const V c(static_cast<T>(a_.soft_cap));
    each(n, score_, [&](auto at) { return c * tanh(at(score_) / c); });
  }
  // Turns the scores of row r, of query i, into exponentials relative to the
  // largest score so far.
  void exponentials(int64_t i, int64_t r) {
    const int64_t nk = keys_, first = before(a_.begin(i)),
                  last = std::max(before(a_.end(i)), first);
    T* const p = score_ + r * nk;
    const T m = max_of(max_[r], row_maximum(last - first, p + first));
    if (m == kLow<T>) return std::fill_n(p, nk, T(0)), void();
    const T sum =
        static_cast<T>(stored_total(last - first, p + first, [&](auto at) {
          return exp_softmax(at(p + first) - V(m));
        }));
    std::fill_n(p, first, T(0));
    std::fill(p + last, p + nk, T(0));
    const T correction = std::exp(max_[r] - m);
    sum_[r] = sum_[r] * correction + sum;
    max_[r] = m;
    if (correction == 1) return;
    T* const o = o_ + r * a_.d;
    each(a_.d, o, [&](auto at) { return at(o) * V(correction); });
  }

  const PagedAttention& a_;
  const T scale_;
  T *q_, *o_, *score_, *max_, *sum_, *k_, *v_;
  std::vector<Piece> pieces_;
  int64_t keys_ = 0;  // in the block
};

}  // namespace

DT_KERNEL(PagedAttention)
void run(Stream, const PagedAttention& a) {
  if (a.by_blocks) return block_attention(a);
  visit_float(a.type, "paged attention", [&]<class S>() { Paged<S>(a).run(); });
}

}  // namespace dtensor::kernels
