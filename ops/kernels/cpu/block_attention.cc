// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/cpu/block_attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <type_traits>
#include <utility>
#include <vector>

#include "dtensor/ops/kernels/cpu/dots.h"
#include "dtensor/ops/kernels/cpu/leaf_gemm.h"
#include "dtensor/ops/kernels/cpu/loops.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "dtensor/ops/kernels/portable/rows.h"

namespace dtensor::kernels::cpu {
namespace {

// The most rows, a query with a head each, that are computed at once.
constexpr int64_t kMostRows = 64;
// 2^63 keys are fewer than 2^58 blocks.
constexpr int kMostNodes = 60;

// Powers of two below this one count as 0, so that no product with one is
// rounded, but for sums that are as small themselves.
template <class T>
constexpr T kLeastPower = std::numeric_limits<T>::min_exponent;

// 2^f for |f| <= 1/2, within 1 ulp.
inline Vec<float> power(Vec<float> f) {
  using V = Vec<float>;
  V y(1.54653e-4f);
  for (float c : {1.33999793e-3f, 9.61817801e-3f, 5.55037595e-2f, 0.240226462f,
                  0.693147182f, 1.0f})
    y = fused(y, f, V(c));
  return y;
}
inline Vec<double> power(Vec<double> f) {
  using V = Vec<double>;
  // ln(2)^i / i!, from i = 13 on.
  V y(1.3691488853904128e-12);
  for (double c :
       {2.5678435993488205e-11, 4.4455382718708114e-10, 7.054911620801123e-9,
        1.0178086009239699e-7, 1.3215486790144307e-6, 1.5252733804059841e-5,
        1.5403530393381608e-4, 1.3333558146428443e-3, 9.618129107628477e-3,
        5.5504108664821576e-2, 0.2402265069591007, 0.6931471805599453, 1.0})
    y = fused(y, f, V(c));
  return y;
}
// 2^k for integers k from kLeastPower to 0.
template <class T>
Vec<T> power_of_integer(Vec<T> k) {
  using M = typename Raw<T>::mask;
  constexpr int kBits = std::numeric_limits<T>::digits - 1;
  constexpr T kBias = std::numeric_limits<T>::max_exponent - 1;
  // Makes k + kBias the low bits of the significand.
  constexpr T kMagic = T(3) * T(int64_t{1} << (kBits - 1));
  return (typename Raw<T>::type)((M)(k + Vec<T>(kMagic + kBias)).v << kBits);
}

// Replaces the scores of a block by the p of the definition. Only those from lo
// to hi are seen. Returns the block's maximum, and sets *sum.
template <class T>
T exponentials(T* score, int64_t lo, int64_t hi, T* sum) {
  using V = Vec<T>;
  constexpr int64_t n = kBlockKeys / V::n, kLanes = 16 / V::n;
  const auto lane = lane_numbers<T>();
  V x[n], most(kLow<T>);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = i * V::n;
    const auto seen = (lane >= lanes<T>(lo - at)) & (lane < lanes<T>(hi - at));
    x[i] = select(seen, load(score + at) * V(std::numbers::log2e_v<T>),
                  V(kLow<T>));
    most = max(most, x[i]);
  }
  const T m = std::ceil(fold(most, [](V a, V b) { return max(a, b); }));
  const V least(m + kLeastPower<T>);
  V all[kLanes];
  for (V& s : all) s = V(0);
  for (int64_t i = 0; i < n; ++i) {
    const V whole = round(x[i]),
            p = power(x[i] - whole) * power_of_integer(whole - V(m));
    // A block of which nothing is seen has a maximum of -inf, and no p.
    const V kept = m == kLow<T> ? V(0) : select(x[i] < least, V(0), p);
    store(score + i * V::n, kept);
    all[i % kLanes] = all[i % kLanes] + kept;
  }
  for (int64_t w = kLanes / 2; w > 0; w /= 2)
    for (int64_t i = 0; i < w; ++i) all[i] = all[i] + all[i + w];
  *sum = simd::sum(all[0]);
  return m;
}

// Keys [lo, hi) of a block.
struct Seen {
  int64_t lo, hi;
};

// The sums of some rows over the keys that were added.
template <class T>
class Nodes {
  using V = Vec<T>;
  // The sums over the blocks of one node of the tree: for each row, the
  // maximum, the sum of p, and that of p v, [rows, d].
  struct Node {
    T *most, *sum, *o;
    int level;  // it has 2^level blocks; those before the first have no keys
  };

 public:
  static int64_t size(int64_t rows, int64_t d, int64_t blocks) {
    return rows * kBlockKeys +
           (std::bit_width(static_cast<uint64_t>(blocks)) + 2) *
               node_size(rows, d);
  }
  Nodes(int64_t rows, int64_t d, T* memory)
      : rows_(rows), d_(d), score_(memory), free_(memory + rows * kBlockKeys) {}

  // Adds a block of keys. products(p) sets p[r * kBlockKeys + s] to the product
  // of row r with key s of the block. score(r, s) gets the products of row r,
  // makes them scores, and returns which keys the row sees. sums(p, o) sets
  // o[r * d] to the sums of row r over the keys, by the p of the definition.
  // REQUIRES: blocks are added in their order.
  template <class P, class F, class O>
  void add(int64_t block, P&& products, F&& score, O&& sums) {
    const Node node = push();
    products(score_);
    for (int64_t r = 0; r < rows_; ++r) {
      T* const of_row = score_ + r * kBlockKeys;
      const Seen seen = score(r, of_row);
      node.most[r] = exponentials(of_row, seen.lo, seen.hi, &node.sum[r]);
    }
    sums(static_cast<const T*>(score_), node.o);
    int level = 0;
    for (; block >> level & 1; ++level)
      if (count_ > 1 && nodes_[count_ - 2].level == level) merge();
    nodes_[count_ - 1].level = level;
  }

  // Calls f(r, o, maximum, sum) for each row.
  template <class F>
  void finish(F&& f) {
    if (count_ == 0) {
      const Node node = push();
      std::fill_n(node.most, rows_, kLow<T>);
      std::fill_n(node.sum, rows_, T(0));
      std::fill_n(node.o, rows_ * d_, T(0));
    }
    while (count_ > 1) merge();
    const Node& all = nodes_[0];
    for (int64_t r = 0; r < rows_; ++r)
      f(r, all.o + r * d_, all.most[r], all.sum[r]);
  }

 private:
  static int64_t node_size(int64_t rows, int64_t d) { return rows * (d + 2); }
  Node push() {
    T* const at = free_ + count_ * node_size(rows_, d_);
    return nodes_[count_++] = {at, at + rows_, at + 2 * rows_, 0};
  }
  // 2^k, or 0. Returns k if it is NaN.
  static T factor(T k) {
    if (k >= kLeastPower<T>) return std::ldexp(T(1), static_cast<int>(k));
    return k < kLeastPower<T> ? T(0) : k;
  }
  // Adds the last node to the one before.
  void merge() {
    const Node &a = nodes_[count_ - 2], &b = nodes_[--count_];
    for (int64_t r = 0; r < rows_; ++r) {
      if (b.most[r] == kLow<T>) continue;
      T *const x = a.o + r * d_, *const y = b.o + r * d_;
      // Nothing is added to it, so that a 0 keeps its sign.
      if (a.most[r] == kLow<T>) {
        a.most[r] = b.most[r];
        a.sum[r] = b.sum[r];
        std::copy_n(y, d_, x);
        continue;
      }
      const T m = a.most[r] >= b.most[r] ? a.most[r] : b.most[r];
      const T by_a = factor(a.most[r] - m), by_b = factor(b.most[r] - m);
      a.sum[r] = a.sum[r] * by_a + b.sum[r] * by_b;
      each(d_, x, [&](auto at) { return at(x) * V(by_a) + at(y) * V(by_b); });
      a.most[r] = m;
    }
  }

  const int64_t rows_, d_;
  T *const score_, *const free_;
  Node nodes_[kMostNodes];
  int count_ = 0;
};

// out = o / sum, and lse = ln(sum 2^most).
template <class S, class T>
void write(int64_t d, const T* o, T most, T sum, S* out, T* lse) {
  const Vec<T> by(sum == 0 ? T(0) : 1 / sum);
  each(d, out, [&](auto at) { return at(o) * by; });
  if (lse)
    *lse = sum == 0
               ? kLow<T>
               : static_cast<T>(static_cast<double>(most) * std::numbers::ln2 +
                                std::log(static_cast<double>(sum)));
}

template <class S, class T>
void widen(int64_t d, const S* from, T scale, T* to) {
  each(d, to, [&](auto at) { return at(from) * Vec<T>(scale); });
}

template <class T>
void cap(int64_t n, double soft_cap, T* score) {
  if (soft_cap == 0) return;
  const Vec<T> c(static_cast<T>(soft_cap)), part(static_cast<T>(1 / soft_cap));
  each(n, score, [&](auto at) { return c * tanh(at(score) * part); });
}

// Adds the mask to n scores of query i, from key j on.
template <class S, class T>
void add_mask(const Attention& a, int64_t b, int64_t h, int64_t i, int64_t j,
              int64_t n, T* score) {
  if (!a.mask.data) return;
  const auto& [of_b, of_h, of_i, step] = a.mask.strides;
  const int64_t at = b * of_b + h * of_h + i * of_i + j * step;
  if (a.mask_is_bool) {
    const auto* m = static_cast<const uint8_t*>(a.mask.data) + at;
    for (int64_t x = 0; x < n; ++x) score[x] = m[x * step] ? score[x] : kLow<T>;
    return;
  }
  T numbers[kBlockKeys];
  const T* m = fetch(static_cast<const S*>(a.mask.data) + at, step, n, numbers);
  each(n, score, [&](auto at) { return at(score) + at(m); });
}

// The element 0 of a row [d] of x [b, h, s, d].
template <class S>
const S* row(const HeadsIn& x, int64_t b, int64_t h, int64_t i) {
  return static_cast<const S*>(x.data) + b * x.strides[0] + h * x.strides[1] +
         i * x.strides[2];
}
template <class S>
S* row(const HeadsOut& x, int64_t b, int64_t h, int64_t i) {
  return const_cast<S*>(row<S>(HeadsIn{x.data, x.strides}, b, h, i));
}

// Memory for Nodes of that many rows and blocks, and for q, k and v.
template <class T>
struct Memory {
  T *q, *k, *v, *nodes;
  Memory(int64_t rows, int64_t d, int64_t blocks)
      : q(scratch<T>(kScratchAttention, (rows + 2 * kBlockKeys) * d +
                                            Nodes<T>::size(rows, d, blocks))),
        k(q + rows * d),
        v(k + kBlockKeys * d),
        nodes(v + kBlockKeys * d) {}
};

template <class S>
void forward(const AttentionForward& f) {
  using T = compute_t<S>;
  const Attention& a = f.of;
  const int64_t d = a.d;
  const Memory<T> memory(std::min(a.s, kMostRows), d, a.t / kBlockKeys + 2);
  // Rows [n, d], as they lie or copied to `to`.
  const auto rows = [&](const HeadsIn& x, int64_t b, int64_t g, int64_t j,
                        int64_t n, T* to) -> Mat<const T> {
    const S* const from = row<S>(x, b, g, j);
    if constexpr (std::is_same_v<S, T>) return {from, x.strides[2], 1};
    for (int64_t i = 0; i < n; ++i)
      widen(d, from + i * x.strides[2], T(1), to + i * d);
    return {to, d, 1};
  };
  // Which of the keys from j to j + n query i sees.
  const auto seen = [&](int64_t i, int64_t j, int64_t n) {
    const int64_t end = i + a.query_offset + 1 - j,
                  hi = a.causal ? std::clamp(end, int64_t{0}, n) : n;
    return Seen{a.window ? std::clamp(end - a.window, int64_t{0}, hi) : 0, hi};
  };
  const auto compute = [&](int64_t b, int64_t h, int64_t i0, int64_t n) {
    const int64_t g = a.kv_head.empty() ? h * a.hkv / a.hq
                                        : a.kv_head[static_cast<size_t>(h)];
    for (int64_t i = 0; i < n; ++i)
      widen(d, row<S>(a.q, b, h, i0 + i), static_cast<T>(a.scale),
            memory.q + i * d);
    Nodes<T> sums(n, d, memory.nodes);
    const int64_t end = seen(i0 + n - 1, 0, a.t).hi;
    for (int64_t j = seen(i0, 0, a.t).lo, next; j < end; j = next) {
      const int64_t first = (a.first_key + j) % kBlockKeys;
      next = std::min(end, j + kBlockKeys - first);
      const int64_t keys = next - j;
      const auto k = rows(a.k, b, g, j, keys, memory.k),
                 v = rows(a.v, b, g, j, keys, memory.v);
      sums.add((a.first_key + j) / kBlockKeys,
               [&](T* p) {
                 leaf_gemm<T>(n, keys, d, {memory.q, d, 1}, k.transposed(),
                              {p + first, kBlockKeys, 1}, false);
               },
               [&](int64_t i, T* score) {
                 const Seen of = seen(i0 + i, j, keys);
                 score += first + of.lo;
                 cap(of.hi - of.lo, a.soft_cap, score);
                 add_mask<S>(a, b, h, i0 + i, j + of.lo, of.hi - of.lo, score);
                 return Seen{first + of.lo, first + of.hi};
               },
               [&](const T* p, T* o) {
                 leaf_gemm<T>(n, d, keys, {p + first, kBlockKeys, 1}, v,
                              {o, d, 1}, false);
               });
    }
    T* const lse = static_cast<T*>(f.lse) + (b * a.hq + h) * a.s + i0;
    sums.finish([&](int64_t i, const T* o, T most, T sum) {
      write(d, o, most, sum, row<S>(f.out, b, h, i0 + i), lse + i);
    });
  };
  for (int64_t b = 0; b < a.b; ++b)
    for (int64_t h = 0; h < a.hq; ++h)
      for (int64_t i = 0; i < a.s; i += kMostRows)
        compute(b, h, i, std::min(kMostRows, a.s - i));
}

// The rows and registers of a tile of value_sums().
constexpr int kValueRows = kVecBytes == 64 ? 6 : 4,
              kValueColumns = kVecBytes == 64 ? 4 : 2;

// o[r, e] = the chain of p[r, j] * v[j][e] over the keys j, in order.
template <class S, class T = compute_t<S>>
void value_sums(int64_t rows, int64_t d, int64_t keys, const T* p,
                const S* const* v, T* o) {
  using V = Vec<T>;
  const auto tile = [&]<int R, int C>(int64_t r, int64_t e, auto get,
                                      auto put) {
    T* const to = o + r * d + e;
    V sum[R][C];
#pragma GCC unroll 6
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) sum[i][c] = V(0);
    for (int64_t j = 0; j < keys; ++j) {
      V x[C];
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) x[c] = in_register(get(v[j] + e + c * V::n));
#pragma GCC unroll 6
      for (int i = 0; i < R; ++i) {
        // Fills a vector with the element; see SmallProduct.
        const V y =
            in_register(V(p[(r + i) * kBlockKeys + j] - typename V::R{}));
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) sum[i][c] = fused(y, x[c], sum[i][c]);
      }
    }
#pragma GCC unroll 6
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) put(to + i * d + c * V::n, sum[i][c]);
  };
  const int64_t rest = d % V::n;
  evenly<kValueRows>(rows, [&]<int R>(int64_t r) {
    by<kValueColumns>(d / V::n, [&]<int C>(int64_t c) {
      tile.template operator()<R, C>(
          r, c * V::n, [](const S* x) { return load(x); },
          [](T* x, V y) { store(x, y); });
    });
    if (rest > 0)
      tile.template operator()<R, 1>(
          r, d - rest, [rest](const S* x) { return load_n(x, rest); },
          [rest](T* x, V y) { store_n(x, y, rest); });
  });
}

template <class S>
class Paged {
  using T = compute_t<S>;
  using V = Vec<T>;

 public:
  explicit Paged(const PagedAttention& a)
      : a_(a),
        memory_(std::max(kMostRows, kFewQueries * a.hq) + a.hq, a.d,
                a.pages_each * a.page / kBlockKeys + 2) {}

  void run() {
    for (int64_t i = 0, n; i < a_.t; i += n) {
      n = 1;
      while (i + n < a_.t && a_.row[i + n] == a_.row[i]) ++n;
      if (n <= kFewQueries) {
        compute(i, n, 0, a_.hq);
        continue;
      }
      for (int64_t h = 0, heads; h < a_.hq; h += heads) {
        heads = sharing(h);
        const int64_t most = std::max<int64_t>(1, kMostRows / heads);
        for (int64_t j = 0; j < n; j += most)
          compute(i + j, std::min(most, n - j), h, heads);
      }
    }
  }

 private:
  // For up to this many queries of a request, keys are read in the order in
  // which they lie: those of all heads before those of the next block.
  static constexpr int64_t kFewQueries = 4;

  // The number of heads from h on that use the head of keys that h uses.
  int64_t sharing(int64_t h) const {
    int64_t n = 1;
    while (h + n < a_.hq && a_.groups.kv_head(h + n) == a_.groups.kv_head(h))
      ++n;
    return n;
  }

  // Computes queries [i0, i0 + n) of a request for heads [h0, h0 + heads). Row
  // h * n + i is for query i of head h, both counted from 0 in these ranges.
  void compute(int64_t i0, int64_t n, int64_t h0, int64_t heads) {
    const int64_t d = a_.d, rows = n * heads;
    int64_t begin = a_.pages_each * a_.page, end = 0;
    for (int64_t i = i0; i < i0 + n; ++i)
      if (a_.end(i) > 0) {
        begin = std::min(begin, a_.begin(i));
        end = std::max(end, a_.end(i));
      }
    for (int64_t r = 0; r < rows; ++r)
      widen(d, row<S>(a_.q, 0, h0 + r / n, i0 + r % n),
            static_cast<T>(a_.scale), memory_.q + r * d);
    Nodes<T> sums(rows, d, memory_.nodes);
    // Calls f(head of keys, first row, rows) for the heads that share keys.
    const auto groups = [&](auto&& f) {
      for (int64_t h = 0, n_heads; h < heads; h += n_heads) {
        n_heads = std::min(sharing(h0 + h), heads - h);
        f(a_.groups.kv_head(h0 + h), h * n, n_heads * n);
      }
    };
    for (int64_t j = begin, next; j < end; j = next) {
      const int64_t first = j % kBlockKeys;
      next = std::min(end, j + kBlockKeys - first);
      find(a_.row[i0], j, next - j);
      sums.add(
          j / kBlockKeys,
          [&](T* p) {
            groups([&](int64_t g, int64_t r, int64_t count) {
              pack_keys(g, first, next - j);
              leaf_gemm<T>(count, kBlockKeys, d, {memory_.q + r * d, d, 1},
                           {memory_.k, kBlockKeys, 1},
                           {p + r * kBlockKeys, kBlockKeys, 1}, false);
            });
          },
          [&](int64_t r, T* score) {
            const int64_t i = i0 + r % n, keys = next - j,
                          hi = std::clamp(a_.end(i) - j, int64_t{0}, keys),
                          lo = std::clamp(a_.begin(i) - j, int64_t{0}, hi);
            score += first;
            cap(hi - lo, a_.soft_cap, score + lo);
            for (int64_t x = lo; x < hi; ++x)
              if (slot_[x] < 0) score[x] = kLow<T>;
            return Seen{first + lo, first + hi};
          },
          [&](const T* p, T* o) {
            groups([&](int64_t g, int64_t r, int64_t count) {
              const S* v[kBlockKeys];
              for (int64_t x = 0; x < next - j; ++x) v[x] = element(a_.v, g, x);
              value_sums(count, d, next - j, p + r * kBlockKeys + first, v,
                         o + r * d);
            });
          });
    }
    T* const lse = static_cast<T*>(a_.lse);
    sums.finish([&](int64_t r, const T* o, T most, T sum) {
      const int64_t i = i0 + r % n, h = h0 + r / n;
      write(d, o, most, sum, row<S>(a_.out, 0, h, i),
            lse ? lse + h * a_.t + i : nullptr);
    });
  }

  // Sets slot_ for keys [j, j + n) of a request.
  void find(int64_t request, int64_t j, int64_t n) {
    for (int64_t x = 0; x < n;) {
      const int64_t at = a_.slot(request, j + x),
                    end = std::min(n, x + a_.page - (j + x) % a_.page);
      for (int64_t y = x; y < end; ++y) slot_[y] = at < 0 ? -1 : at + y - x;
      x = end;
    }
  }

  // Element 0 of key or value x of the block; zeros if it does not exist.
  const S* element(const HeadsIn& of, int64_t g, int64_t x) const {
    return slot_[x] < 0 ? zeros_.data() : row<S>(of, 0, g, slot_[x]);
  }
  // memory_.k[e, first + x] = element e of key x, for x < n.
  void pack_keys(int64_t g, int64_t first, int64_t n) {
    const int64_t d = a_.d;
    // Keys are often a multiple of 4 KiB apart, so that few of them fit into
    // the first-level cache: each of their lines is read once.
    T square[V::n * V::n];
    for (int64_t x = 0; x < n; x += V::n)
      for (int64_t e = 0; e < d; e += V::n) {
        const int64_t keys = std::min(V::n, n - x), k = std::min(V::n, d - e);
        for (int64_t i = 0; i < keys; ++i) {
          const S* const at = element(a_.k, g, x + i) + e;
          // If heads are contiguous, the next one's elements.
          __builtin_prefetch(at + d);
          store(square + i * V::n, k == V::n ? load(at) : load_n(at, k));
        }
        transpose(keys, k, square, V::n, memory_.k + e * kBlockKeys + first + x,
                  kBlockKeys);
      }
  }

  const PagedAttention& a_;
  const Memory<T> memory_;
  const std::vector<S> zeros_ = std::vector<S>(static_cast<size_t>(a_.d));
  int64_t slot_[kBlockKeys];  // of the block's keys; -1 if it does not exist
};

}  // namespace

void block_attention(const AttentionForward& f) {
  visit_float(f.of.type, "attention", [&]<class S>() { forward<S>(f); });
}
void block_attention(const PagedAttention& a) {
  visit_float(a.type, "paged attention", [&]<class S>() { Paged<S>(a).run(); });
}

}  // namespace dtensor::kernels::cpu
