// SPDX-License-Identifier: Apache-2.0
// Attention is compared, bit for bit, with a scalar program that follows the
// definition in docs/reproducible.md.
#include "dtensor/ops/kernels/cpu/block_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <random>
#include <type_traits>
#include <vector>

#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/placement/exact.h"

namespace dtensor::kernels::cpu {
namespace {

using std::vector;

template <class T>
constexpr T kNone = -std::numeric_limits<T>::infinity();

// --- The definition ----------------------------------------------------------

// A sum of products: leaves of 128. Several leaves of float are added exactly,
// those of double in turn.
template <class T>
T product(const T* a, const T* b, int64_t b_step, int64_t n) {
  Exact exact;
  T in_turn = 0;
  for (int64_t begin = 0; begin < n; begin += 128) {
    T leaf = 0;
    for (int64_t i = begin; i < std::min(n, begin + 128); ++i)
      leaf = std::fma(a[i], b[i * b_step], leaf);
    exact.add(leaf);
    in_turn = begin == 0 ? leaf : in_turn + leaf;
  }
  return std::is_same_v<T, float> && n > 128 ? static_cast<T>(exact.value())
                                             : in_turn;
}

// 2^(x - m) for an integer m >= x; 0 if it is below about 2^-125.
float power(float x, float m) {
  if (x < m - 125) return 0;
  const float n = std::nearbyint(x), f = x - n;
  float y = 1.54653e-4f;
  for (float c : {1.33999793e-3f, 9.61817801e-3f, 5.55037595e-2f, 0.240226462f,
                  0.693147182f, 1.0f})
    y = std::fma(y, f, c);
  return std::ldexp(y, static_cast<int>(n - m));
}
double power(double x, double m) {
  if (x < m - 1021) return 0;
  const double n = std::nearbyint(x), f = x - n;
  double y = 1.3691488853904128e-12;
  for (double c :
       {2.5678435993488205e-11, 4.4455382718708114e-10, 7.054911620801123e-9,
        1.0178086009239699e-7, 1.3215486790144307e-6, 1.5252733804059841e-5,
        1.5403530393381608e-4, 1.3333558146428443e-3, 9.618129107628477e-3,
        5.5504108664821576e-2, 0.2402265069591007, 0.6931471805599453, 1.0})
    y = std::fma(y, f, c);
  return std::ldexp(y, static_cast<int>(n - m));
}

template <class T>
struct Node {
  T most = kNone<T>, sum = 0;
  vector<T> o;
};
// A score of each key of the sequence; kNone if the query does not see the key.
template <class T>
Node<T> block(const vector<T>& score, const T* v, int64_t d, int64_t index) {
  Node<T> node{.o = vector<T>(static_cast<size_t>(d))};
  const int64_t first = index * 64,
                keys = std::min<int64_t>(64, std::ssize(score) - first);
  const T* const s = score.data() + first;
  T x[64], p[64] = {}, lanes[16] = {};
  for (int64_t j = 0; j < keys; ++j) {
    x[j] = s[j] * std::numbers::log2e_v<T>;
    node.most = std::max(node.most, std::ceil(x[j]));
  }
  if (node.most == kNone<T>) return node;
  for (int64_t j = 0; j < keys; ++j) p[j] = power(x[j], node.most);
  for (int64_t j = 0; j < 64; ++j) lanes[j % 16] += p[j];
  for (int64_t w = 8; w > 0; w /= 2)
    for (int64_t i = 0; i < w; ++i) lanes[i] += lanes[i + w];
  node.sum = lanes[0];
  for (int64_t e = 0; e < d; ++e)
    node.o[static_cast<size_t>(e)] = product(p, v + first * d + e, d, keys);
  return node;
}
template <class T>
Node<T> added(Node<T> a, const Node<T>& b) {
  if (a.most == kNone<T>) return b;
  if (b.most == kNone<T>) return a;
  const T most = std::max(a.most, b.most);
  const auto factor = [&](T of) {
    return of - most < std::numeric_limits<T>::min_exponent
               ? T(0)
               : std::ldexp(T(1), static_cast<int>(of - most));
  };
  const T by_a = factor(a.most), by_b = factor(b.most);
  a.most = most;
  a.sum = a.sum * by_a + b.sum * by_b;
  for (size_t e = 0; e < a.o.size(); ++e)
    a.o[e] = a.o[e] * by_a + b.o[e] * by_b;
  return a;
}
// Blocks [first, last). The first part is as large a power of two as can be.
template <class T>
Node<T> tree(const vector<T>& score, const T* v, int64_t d, int64_t first,
             int64_t last) {
  if (last - first == 1) return block(score, v, d, first);
  int64_t size = 1;
  while (2 * size < last - first) size *= 2;
  return added(tree(score, v, d, first, first + size),
               tree(score, v, d, first + size, last));
}
// The result [d] for the scores of all keys, and the lse behind it.
template <class T>
vector<T> result(const vector<T>& score, const T* v, int64_t d) {
  Node<T> all =
      tree(score, v, d, 0, std::max<int64_t>(1, (std::ssize(score) + 63) / 64));
  const T by = all.sum == 0 ? T(0) : 1 / all.sum;
  for (T& x : all.o) x *= by;
  all.o.push_back(all.sum == 0
                      ? kNone<T>
                      : static_cast<T>(double{all.most} * std::numbers::ln2 +
                                       std::log(double{all.sum})));
  return all.o;
}

// --- What is compared --------------------------------------------------------

template <class T>
vector<T> random_numbers(int64_t n, unsigned seed, double scale = 1) {
  std::mt19937 bits(seed);
  std::normal_distribution<double> normal;
  vector<T> x(static_cast<size_t>(n));
  for (T& y : x) y = static_cast<T>(normal(bits) * scale);
  return x;
}

template <class T>
bool same(T x, T y) {
  return std::memcmp(&x, &y, sizeof(T)) == 0;
}

struct Case {
  int64_t s, t, d;
  bool causal = true;
  int64_t offset = 0, window = 0, first_key = 0;
  double scale = 0.3;  // large: scores underflow
  int mask = 0;        // 1: of bools, 2: of numbers
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.s << " queries, " << c.t << " keys, d " << c.d << ", causal "
             << c.causal << ", offset " << c.offset << ", window " << c.window
             << ", first key " << c.first_key << ", scale " << c.scale
             << ", mask " << c.mask;
}

template <class T>
constexpr DType kType = sizeof(T) == 4 ? DType::kF32 : DType::kF64;

// Two heads, which share a head of keys.
template <class T>
void expect_defined(const Case& c) {
  const int64_t h = 2;
  const vector<T> q = random_numbers<T>(h * c.s * c.d, 1),
                  k = random_numbers<T>(c.t * c.d, 2);
  vector<T> v = random_numbers<T>(c.t * c.d, 3);
  // So that even the smallest p count.
  if (c.scale > 1)
    for (size_t i = 0; i < v.size(); ++i)
      v[i] = std::ldexp(v[i], static_cast<int>(i * 37 % 121) - 60);
  vector<T> out(q.size()), lse(static_cast<size_t>(h * c.s)),
      numbers = random_numbers<T>(c.s * c.t, 4);
  vector<uint8_t> bools(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    bools[i] = numbers[i] > 0;
    if (numbers[i] > 1) numbers[i] = kNone<T>;
  }
  AttentionForward f;
  Attention& a = f.of;
  a.type = kType<T>;
  a.b = 1, a.hq = h, a.hkv = 1, a.s = c.s, a.t = c.t, a.d = c.d;
  a.q = {q.data(), {0, c.s * c.d, c.d, 1}};
  a.k = {k.data(), {0, 0, c.d, 1}}, a.v = {v.data(), {0, 0, c.d, 1}};
  f.out = {out.data(), a.q.strides}, f.lse = lse.data();
  a.scale = c.scale, a.causal = c.causal, a.query_offset = c.offset;
  a.window = c.window, a.first_key = c.first_key, a.by_blocks = true;
  if (c.mask) {
    a.mask = {
        c.mask == 1 ? static_cast<const void*>(bools.data()) : numbers.data(),
        {0, 0, c.t, 1}};
    a.mask_is_bool = c.mask == 1;
  }
  block_attention(f);
  // The keys before the first of this call are not seen.
  const int64_t all = c.first_key + c.t;
  vector<T> values(static_cast<size_t>(all * c.d));
  std::copy(v.begin(), v.end(), values.begin() + c.first_key * c.d);
  for (int64_t r = 0; r < h * c.s; ++r) {
    const int64_t i = r % c.s, end = i + c.offset + 1;
    vector<T> scaled(q.begin() + r * c.d, q.begin() + (r + 1) * c.d);
    for (T& x : scaled) x *= static_cast<T>(c.scale);
    vector<T> score(static_cast<size_t>(all), kNone<T>);
    for (int64_t j = 0; j < c.t; ++j) {
      if (c.causal && (j >= end || (c.window && j < end - c.window))) continue;
      const auto at = static_cast<size_t>(i * c.t + j);
      if (c.mask == 1 && !bools[at]) continue;
      T& x = score[static_cast<size_t>(c.first_key + j)];
      x = product(scaled.data(), &k[static_cast<size_t>(j * c.d)], 1, c.d);
      if (c.mask == 2) x += numbers[at];
    }
    const vector<T> want = result(score, values.data(), c.d);
    for (int64_t e = 0; e < c.d; ++e)
      ASSERT_TRUE(same(out[static_cast<size_t>(r * c.d + e)],
                       want[static_cast<size_t>(e)]))
          << "row " << r << ", element " << e << " of " << c << ", "
          << sizeof(T) << " bytes";
    ASSERT_TRUE(same(lse[static_cast<size_t>(r)], want.back()))
        << "row " << r << " of " << c;
  }
}

TEST(BlockAttentionTest, FollowsTheDefinition) {
  for (const Case& c : {
           Case{.s = 1, .t = 1, .d = 1},
           {.s = 5, .t = 5, .d = 3},
           {.s = 65, .t = 65, .d = 16},
           {.s = 130, .t = 130, .d = 40},
           {.s = 400, .t = 400, .d = 8},
           {.s = 7, .t = 1000, .d = 64, .offset = 993},
           {.s = 1, .t = 2000, .d = 300, .offset = 1999},
           {.s = 70, .t = 900, .d = 20, .causal = false},
           {.s = 300, .t = 300, .d = 8, .window = 70},
           {.s = 90, .t = 400, .d = 8, .offset = 310, .window = 1},
           {.s = 100, .t = 230, .d = 8, .offset = 130, .first_key = 75},
           {.s = 3, .t = 500, .d = 8, .offset = 490, .first_key = 5 * 64},
           {.s = 90,
           .t = 400,
           .d = 8,
           .offset = 310,
           .window = 133,
           .first_key = 259},
           {.s = 200, .t = 200, .d = 64, .scale = 9},
           {.s = 200, .t = 200, .d = 64, .scale = 90},
           {.s = 150, .t = 150, .d = 8, .mask = 1},
           {.s = 80, .t = 300, .d = 8, .causal = false, .mask = 1},
           {.s = 150, .t = 150, .d = 8, .mask = 2},
           {.s = 20, .t = 3, .d = 2, .offset = -10},
       }) {
    expect_defined<float>(c);
    expect_defined<double>(c);
    if (HasFatalFailure()) return;
  }
}

// The gradients are near those of a plain loop in f64.
TEST(BlockAttentionTest, GradientsAreNearThoseOfF64) {
  const int64_t s = 150, d = 20;
  const double scale = 0.3;
  const auto n = static_cast<size_t>(s * d);
  const vector<float> q = random_numbers<float>(s * d, 1),
                      k = random_numbers<float>(s * d, 2),
                      v = random_numbers<float>(s * d, 3),
                      dy = random_numbers<float>(s * d, 4);
  vector<float> out(n), lse(static_cast<size_t>(s)), dq(n), dk(n), dv(n);
  AttentionForward f;
  Attention& a = f.of;
  a.b = a.hq = a.hkv = 1, a.s = a.t = s, a.d = d;
  a.q = {q.data(), {0, 0, d, 1}};
  a.k = {k.data(), a.q.strides}, a.v = {v.data(), a.q.strides};
  a.scale = scale, a.causal = true, a.by_blocks = true;
  f.out = {out.data(), a.q.strides}, f.lse = lse.data();
  cpu_kernels().run(Stream{}, f);
  cpu_kernels().run(Stream{},
                    AttentionBackward{.of = a,
                                      .out = {out.data(), a.q.strides},
                                      .dout = {dy.data(), a.q.strides},
                                      .lse = lse.data(),
                                      .dq = {dq.data(), a.q.strides},
                                      .dk = {dk.data(), a.q.strides},
                                      .dv = {dv.data(), a.q.strides}});
  const auto dot = [&](const vector<float>& x, int64_t i,
                       const vector<float>& y, int64_t j) {
    double sum = 0;
    for (int64_t e = 0; e < d; ++e)
      sum += double{x[static_cast<size_t>(i * d + e)]} *
             double{y[static_cast<size_t>(j * d + e)]};
    return sum;
  };
  vector<double> want_q(n), want_k(n), want_v(n);
  for (int64_t i = 0; i < s; ++i) {
    vector<double> p(static_cast<size_t>(i + 1));
    double sum = 0, delta = 0;
    for (int64_t j = 0; j <= i; ++j)
      sum += p[static_cast<size_t>(j)] = std::exp(scale * dot(q, i, k, j));
    for (int64_t j = 0; j <= i; ++j)
      delta += (p[static_cast<size_t>(j)] /= sum) * dot(dy, i, v, j);
    for (int64_t j = 0; j <= i; ++j) {
      const double of = p[static_cast<size_t>(j)],
                   ds = of * (dot(dy, i, v, j) - delta) * scale;
      for (int64_t e = 0; e < d; ++e) {
        const auto at = static_cast<size_t>(i * d + e),
                   key = static_cast<size_t>(j * d + e);
        want_q[at] += ds * double{k[key]};
        want_k[key] += ds * double{q[at]};
        want_v[key] += of * double{dy[at]};
      }
    }
  }
  for (size_t i = 0; i < n; ++i) {
    ASSERT_NEAR(dq[i], want_q[i], 1e-5) << i;
    ASSERT_NEAR(dk[i], want_k[i], 1e-5) << i;
    ASSERT_NEAR(dv[i], want_v[i], 1e-5) << i;
  }
}

// Texts in pages, each query alone or with others, give the bits of attention
// to whole texts. One page of the first text does not exist.
template <class T>
void expect_same_in_pages(int64_t window, double soft_cap) {
  constexpr int64_t hq = 6, hkv = 2, d = 24, page = 5, pages = 90, slots = 450;
  const int64_t lengths[] = {200, 3, 131};
  vector<T> k(slots * hkv * d), v = k;
  vector<int64_t> table(3 * 40, -1), order(pages);
  for (int64_t i = 0; i < pages; ++i) order[static_cast<size_t>(i)] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937(5));
  vector<vector<T>> q, want;
  int64_t taken = 0;
  for (int64_t text = 0; text < 3; ++text) {
    const int64_t n = lengths[text];
    const auto seed = static_cast<unsigned>(10 * text);
    q.push_back(random_numbers<T>(n * hq * d, seed));
    const vector<T> keys = random_numbers<T>(n * hkv * d, seed + 1),
                    values = random_numbers<T>(n * hkv * d, seed + 2);
    for (int64_t p = 0; p < n; ++p) {
      int64_t& at = table[static_cast<size_t>(text * 40 + p / page)];
      if (at < 0) at = order[static_cast<size_t>(taken++)];
      const int64_t slot = at * page + p % page;
      for (int64_t e = 0; e < hkv * d; ++e) {
        k[static_cast<size_t>(slot * hkv * d + e)] =
            keys[static_cast<size_t>(p * hkv * d + e)];
        v[static_cast<size_t>(slot * hkv * d + e)] =
            values[static_cast<size_t>(p * hkv * d + e)];
      }
    }
    want.emplace_back(q.back().size());
    vector<T> lse(static_cast<size_t>(n * hq));
    vector<uint8_t> exists(static_cast<size_t>(n), 1);
    if (text == 0) {
      table[4] = -1;
      std::fill_n(exists.begin() + 4 * page, page, uint8_t{0});
    }
    AttentionForward f;
    Attention& a = f.of;
    a.type = kType<T>;
    a.mask = {exists.data(), {0, 0, 0, 1}}, a.mask_is_bool = true;
    a.b = 1, a.hq = hq, a.hkv = hkv, a.s = a.t = n, a.d = d;
    a.q = {q.back().data(), {0, d, hq * d, 1}};
    a.k = {keys.data(), {0, d, hkv * d, 1}};
    a.v = {values.data(), a.k.strides};
    f.out = {want.back().data(), a.q.strides}, f.lse = lse.data();
    a.scale = 0.2, a.soft_cap = soft_cap, a.causal = true, a.window = window;
    a.by_blocks = true;
    block_attention(f);
  }
  // Calls with queries of several texts.
  for (int64_t each : {1, 2, 7, 100}) {
    for (int64_t begin = 0; begin < 200; begin += each) {
      vector<int64_t> row, position;
      vector<T> queries;
      for (int64_t text : {2, 0, 1})
        for (int64_t p = begin; p < std::min(begin + each, lengths[text]);
             ++p) {
          row.push_back(text), position.push_back(p);
          const auto from = q[static_cast<size_t>(text)].begin() + p * hq * d;
          queries.insert(queries.end(), from, from + hq * d);
        }
      row.push_back(-1), position.push_back(-1);  // padding
      queries.resize(row.size() * hq * d);
      vector<T> out(queries.size());
      PagedAttention a{.type = kType<T>};
      a.t = std::ssize(row), a.hq = hq, a.hkv = hkv, a.slots = slots, a.d = d;
      a.q = {queries.data(), {0, d, hq * d, 1}};
      a.k = {k.data(), {0, d, hkv * d, 1}}, a.v = {v.data(), a.k.strides};
      a.out = {out.data(), a.q.strides};
      a.groups = {.heads = hq, .kv_heads = hkv};
      a.page = page, a.requests = 3, a.pages_each = 40;
      a.pages = table.data(), a.row = row.data(), a.position = position.data();
      a.scale = 0.2, a.soft_cap = soft_cap, a.window = window;
      a.by_blocks = true;
      block_attention(a);
      for (size_t i = 0; i + 1 < row.size(); ++i)
        for (int64_t e = 0; e < hq * d; ++e)
          ASSERT_TRUE(same(out[i * hq * d + static_cast<size_t>(e)],
                           want[static_cast<size_t>(row[i])]
                               [static_cast<size_t>(position[i] * hq * d + e)]))
              << "text " << row[i] << " at " << position[i] << ", with " << each
              << " queries, window " << window;
    }
  }
}

TEST(BlockAttentionTest, PagesHaveTheBitsOfWholeTexts) {
  for (int64_t window : {0, 3, 77}) {
    expect_same_in_pages<float>(window, 0);
    expect_same_in_pages<double>(window, 0.5);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace dtensor::kernels::cpu
