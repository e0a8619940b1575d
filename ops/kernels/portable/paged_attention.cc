// SPDX-License-Identifier: Apache-2.0
// Attention to pages of keys and values, for GPUs; the CPU has its own
// (../cpu).
//
// The keys of a query are cut into parts, so that one query fills a GPU. A
// block has a part and a few query heads with the same head of keys, which
// share each row that the block reads. Several neighbouring lanes read a row,
// 16 bytes each. A second kernel merges the parts by their maxima and sums.
//
// Parts depend only on the number of the query's keys, and are merged in their
// order. Hence the bits of a result depend neither on other queries, nor on how
// many parts a block takes one after the other.
#include "dtensor/ops/kernels/paged_attention.h"

#include <algorithm>

#include "dtensor/ops/functions/math.h"
#include "dtensor/ops/kernels/portable/divisor.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/lane_sums.cuh"
#include "dtensor/ops/kernels/portable/portable_kernels.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::compute_t;
using portable::Divisor;
using portable::lowest;
using portable::Max;
using portable::Pack;
using portable::Row;
using portable::Scratch;
using portable::Sum;
using portable::widened;

constexpr int kLanes = 128;          // of a block
constexpr int kKeys = 64;            // keys that a block computes at once
constexpr int kAtOnce = 4;           // rows that a lane loads at once
constexpr int64_t kMostParts = 64;   // of a query
constexpr int64_t kBlocks = 4096;    // more are not faster
constexpr int64_t kMost = 64 << 20;  // bytes for results of parts

int64_t ceil_div(int64_t n, int64_t by) { return (n + by - 1) / by; }

// Keys [begin, begin + n) of query i. They are `blocks` blocks of kKeys keys,
// and a part has `each` blocks.
struct Keys {
  int64_t begin, n, blocks, each;
  DT_HD Keys(const PagedAttention& a, int64_t i)
      : begin(a.begin(i)), n(a.end(i) - begin) {
    if (n < 0) n = 0;
    blocks = (n + kKeys - 1) / kKeys;
    each = (blocks + kMostParts - 1) / kMostParts;
  }
  DT_HD bool has(int64_t part) const { return part * each < blocks; }
};

}  // namespace

// The results of the parts of queries [first, first + n). For each query, head
// and part, `values` has `pitch` values, which are not yet divided by the sum,
// and `stats` has the maximum of the scores and the sum of exp(score -
// maximum).
template <class T>
struct PagedParts {
  int64_t first = 0, n, most, pitch;
  T *values = nullptr, *stats = nullptr;

  explicit PagedParts(const PagedAttention& a) {
    constexpr int64_t W = portable::kPack<T>;
    int64_t keys = a.pages_each * a.page;
    if (a.window > 0) keys = std::min(keys, a.window);
    most = std::clamp<int64_t>(ceil_div(keys, kKeys), 1, kMostParts);
    pitch = ceil_div(a.d, W) * W;
    n = std::clamp<int64_t>(kMost / (a.hq * bytes()), 1, a.t);
  }
  // The bytes of the results of one query and head, in all parts.
  int64_t bytes() const {
    return most * (pitch + 2) * static_cast<int64_t>(sizeof(T));
  }
  DT_HD int64_t at(const PagedAttention& a, int64_t i, int64_t h,
                   int64_t part) const {
    return ((i - first) * a.hq + h) * most + part;
  }
};

namespace {

// One value for each of a block's query heads, side by side.
template <class T, int G>
struct alignas(std::min<size_t>(16, sizeof(T) * G)) Few {
  T of[G];
};

// Computes all parts. A block has up to G query heads that use one head of
// keys.
template <int G, bool kAligned, class S, class T = compute_t<S>>
void paged_parts(Stream s, const PagedAttention& a,
                 const PagedParts<T>& parts) {
  constexpr int W = portable::kPack<S>;
  // The pitch of the sums in fast memory: lanes that add neighbouring elements
  // use different banks.
  constexpr int kPitch = kLanes + 32 / W;
  using F = Few<T, G>;
  const int64_t packs = ceil_div(a.d, W);
  const int shift = packs <= 8 ? 3 : packs <= 16 ? 4 : 5;  // log2(lanes)
  const HeadGroups& of = a.groups;
  const int64_t first_kv = of.kv_head(0),
                kv_heads = of.kv_head(a.hq - 1) + 1 - first_kv,
                group = std::min(a.hq, ceil_div(of.heads, of.kv_heads)),
                sets = ceil_div(group, G), tasks = parts.n * kv_heads * sets,
                at_once = std::clamp<int64_t>(kBlocks / tasks, 1, parts.most);
  const auto divisor = [](int64_t by) {
    return Divisor(static_cast<uint32_t>(by));
  };
  const Divisor by_set = divisor(sets), by_part = divisor(at_once),
                by_head = divisor(kv_heads), by_page = divisor(a.page),
                by_kv_head = divisor(of.kv_heads);
  const int64_t pages = a.slots / a.page;
  const T scale = static_cast<T>(a.scale), cap = static_cast<T>(a.soft_cap),
          per_cap = cap == 0 ? T(0) : 1 / cap;
  portable::rows_of<kLanes, G == 8 ? 3 : 4>(
      s, tasks * at_once, kLanes,
      DT_BODY(Row & row, int64_t r) {
        // Tasks are numbered in this order, the first varying fastest: sets of
        // heads, which read the same keys; parts; heads of keys; queries.
        const auto task = static_cast<uint32_t>(r),
                   of_set = by_set.quotient(task),
                   of_part = by_part.quotient(of_set),
                   of_head = by_head.quotient(of_part);
        const int64_t set = task - of_set * static_cast<uint32_t>(sets),
                      part0 = of_set - of_part * static_cast<uint32_t>(at_once),
                      g = first_kv + of_part -
                          of_head * static_cast<uint32_t>(kv_heads),
                      i = parts.first + of_head;
        // The first query head that uses head `kv` of keys.
        const auto begin_of = [&](int64_t kv) {
          const int64_t all = (kv + a.groups.first_kv_head) * a.groups.heads;
          return static_cast<int64_t>(by_kv_head.quotient(
                     static_cast<uint32_t>(all + a.groups.kv_heads - 1))) -
                 a.groups.first_head;
        };
        int64_t h0 = begin_of(g), heads = begin_of(g + 1);
        if (h0 < 0) h0 = 0;
        if (heads > a.hq) heads = a.hq;
        h0 += set * G;
        heads -= h0;
        if (heads <= 0) return;
        const Keys keys(a, i);

        T* const sums = row.fast<T>();
        F* const p = reinterpret_cast<F*>(sums + G * W * kPitch);
        int64_t* const slots = reinterpret_cast<int64_t*>(p + kKeys);
        T* const most = reinterpret_cast<T*>(slots + kKeys);
        T* const all = most + G;
        T* const factor = all + G;  // rescales to the new maximum

        const S* const q = static_cast<const S*>(a.q.data) +
                           h0 * a.q.strides[1] + i * a.q.strides[2];
        const S* const k = static_cast<const S*>(a.k.data) + g * a.k.strides[1];
        const S* const v = static_cast<const S*>(a.v.data) + g * a.v.strides[1];
        const int lanes = 1 << shift, groups = kLanes >> shift,
                  round = groups * kAtOnce;
        const int64_t slice = int64_t{lanes} * W;

        // Calls f(j, pack) for the keys j in [0, n) of a lane's group, and for
        // some of the keys behind them. `pack` has W elements, from e on, of
        // key or value j in `rows`, or zeros if slots[j] is -1.
        const auto each_key = [&](int group, int n, const S* rows,
                                  int64_t stride, int64_t e, auto f) {
          for (int j0 = group; j0 - group < n; j0 += round) {
            Pack<S, W> pack[kAtOnce];
#pragma unroll
            for (int u = 0; u < kAtOnce; ++u) {
              const int64_t slot = slots[j0 + u * groups];
              pack[u] = load_at<kAligned, W>(
                  rows + (slot < 0 ? 0 : slot) * stride, e, slot < 0 ? 0 : a.d);
            }
#pragma unroll
            for (int u = 0; u < kAtOnce; ++u) f(j0 + u * groups, pack[u]);
          }
        };

        for (int64_t part = part0; keys.has(part); part += at_once) {
          int64_t block = part * keys.each, end = block + keys.each;
          if (end > keys.blocks) end = keys.blocks;
          for (bool first = true; block < end; ++block, first = false) {
            const int64_t j0 = keys.begin + block * kKeys,
                          left = keys.n - block * kKeys;
            const int n = left < kKeys ? static_cast<int>(left) : kKeys;
            row.each(kKeys, [&](int64_t j) {
              slots[j] = -1;
              if (j >= n) return;
              const auto at = static_cast<uint32_t>(j0 + j),
                         page = by_page.quotient(at);
              const int64_t here =
                  a.pages[a.row[i] * a.pages_each + page] - a.first_page;
              if (here >= 0 && here < pages)
                slots[j] =
                    here * a.page + at - page * static_cast<uint32_t>(a.page);
            });

            row.each(kLanes, [&](int64_t lane) {
              const int l = static_cast<int>(lane) & (lanes - 1);
              for (int64_t e0 = 0; e0 == 0 || e0 < a.d; e0 += slice) {
                const int64_t e = e0 + l * W;
                T query[G][W];
#pragma unroll
                for (int h = 0; h < G; ++h) {
                  const auto pack = load_at<kAligned, W>(
                      q + h * a.q.strides[1], e, h < heads ? a.d : 0);
#pragma unroll
                  for (int w = 0; w < W; ++w)
                    query[h][w] = widened(pack.v[w]) * scale;
                }
                each_key(static_cast<int>(lane) >> shift, n, k, a.k.strides[2],
                         e, [&](int j, const Pack<S, W>& key) {
                           T x[G] = {};
#pragma unroll
                           for (int w = 0; w < W; ++w)
#pragma unroll
                             for (int h = 0; h < G; ++h)
                               x[h] += query[h][w] * widened(key.v[w]);
                           const T sum = sum_over_lanes(x, l, lanes);
                           if (l < G)
                             p[j].of[l] = e0 == 0 ? sum : p[j].of[l] + sum;
                         });
              }
            });

            // Each warp computes the exponentials of one head at a time.
            row.each(kLanes, [&](int64_t lane) {
              constexpr int kWarps = kLanes / portable::kWarp;
              Row warp(static_cast<int>(lane) % portable::kWarp,
                       portable::kWarp, nullptr, nullptr);
              for (int h = static_cast<int>(lane) / portable::kWarp; h < G;
                   h += kWarps) {
                const T before = first ? lowest<T>() : most[h];
                const T now = warp.reduce(kKeys, before, Max(), [&](int64_t j) {
                  T& x = p[j].of[h];
                  if (slots[j] < 0)
                    x = lowest<T>();
                  else if (cap != 0)
                    x = cap * fn::tanh(x * per_cap);
                  return x;
                });
                const bool none = now == lowest<T>();
                const T sum = warp.reduce(kKeys, T(0), Sum(), [&](int64_t j) {
                  T& x = p[j].of[h];
                  x = none ? T(0) : fn::exp(x - now);
                  return x;
                });
                const T by = none ? T(1) : fn::exp(before - now);
                const T total = first ? sum : all[h] * by + sum;
                warp.each(1, [&](int64_t) {
                  most[h] = now;
                  all[h] = total;
                  factor[h] = by;
                });
              }
            });

            for (int64_t e0 = 0; e0 < a.d; e0 += slice) {
              row.each(kLanes, [&](int64_t lane) {
                const int l = static_cast<int>(lane) & (lanes - 1);
                T o[G][W] = {};
                each_key(static_cast<int>(lane) >> shift, n, v, a.v.strides[2],
                         e0 + l * W, [&](int j, const Pack<S, W>& value) {
                           const F weight = p[j];
#pragma unroll
                           for (int w = 0; w < W; ++w) {
                             const T x = widened(value.v[w]);
#pragma unroll
                             for (int h = 0; h < G; ++h)
                               o[h][w] += weight.of[h] * x;
                           }
                         });
#pragma unroll
                for (int h = 0; h < G; ++h)
#pragma unroll
                  for (int w = 0; w < W; ++w)
                    sums[(h * W + w) * kPitch + lane] = o[h][w];
              });
              row.each(G * slice, [&](int64_t at) {
                const auto h = static_cast<int>(at / W) >> shift;
                const int64_t e = at & (slice - 1);
                if (h >= heads || e0 + e >= a.d) return;
                const T* const from = sums + (h * W + e % W) * kPitch + e / W;
                T sum = 0;
                for (int group = 0; group < groups; ++group)
                  sum += from[group << shift];
                T& to =
                    parts.values[parts.at(a, i, h0 + h, part) * parts.pitch +
                                 e0 + e];
                to = first ? sum : to * factor[h] + sum;
              });
            }
          }
          row.each(G, [&](int64_t h) {
            if (h >= heads) return;
            T* const to = parts.stats + 2 * parts.at(a, i, h0 + h, part);
            to[0] = most[h];
            to[1] = all[h];
          });
        }
      },
      int64_t{sizeof(T)} * (G * W * kPitch + 3 * G) +
          kKeys * int64_t{sizeof(F) + sizeof(int64_t)});
}

// Merges the parts. A row of lanes has a slice of one head of one query.
template <class S, class T = compute_t<S>>
void paged_merge(Stream s, const PagedAttention& a,
                 const PagedParts<T>& parts) {
  constexpr int W = portable::kPack<T>, kPacks = 32, kSides = 8;
  constexpr int64_t kSlice = kPacks * W;
  const int64_t slices = std::max<int64_t>(1, ceil_div(a.d, kSlice));
  const Divisor by_slice(static_cast<uint32_t>(slices)),
      by_head(static_cast<uint32_t>(a.hq));
  portable::rows_of<kPacks * kSides, 0>(
      s, parts.n * a.hq * slices, kPacks * kSides,
      DT_BODY(Row & row, int64_t r) {
        const auto task = static_cast<uint32_t>(r),
                   of_slice = by_slice.quotient(task),
                   of_head = by_head.quotient(of_slice);
        const int64_t e0 = (task - of_slice * static_cast<uint32_t>(slices)) *
                           kSlice,
                      h = of_slice - of_head * static_cast<uint32_t>(a.hq),
                      i = parts.first + of_head;
        const Keys keys(a, i);
        const int64_t at = parts.at(a, i, h, 0);
        const T* const values = parts.values + at * parts.pitch;
        const T* const stats = parts.stats + at * 2;
        T* const sums = row.fast<T>();
        T* const weights = sums + kSides * kSlice;
        const T most =
            row.reduce(parts.most, lowest<T>(), Max(), [&](int64_t part) {
              return keys.has(part) ? stats[2 * part] : lowest<T>();
            });
        const T all = row.reduce(parts.most, T(0), Sum(), [&](int64_t part) {
          const bool any = keys.has(part) && most != lowest<T>();
          weights[part] = any ? fn::exp(stats[2 * part] - most) : T(0);
          return any ? weights[part] * stats[2 * part + 1] : T(0);
        });
        row.each(kPacks * kSides, [&](int64_t lane) {
          const int64_t e = lane % kPacks * W, side = lane / kPacks;
          Pack<T, W> sum = {};
          if (e0 + e < a.d) {
            DT_UNROLL(8)
            for (int64_t part = side; part < parts.most; part += kSides)
              if (keys.has(part)) {
                const auto pack =
                    portable::load<W>(values + part * parts.pitch + e0 + e);
                const T weight = weights[part];
#pragma unroll
                for (int w = 0; w < W; ++w) sum.v[w] += weight * pack.v[w];
              }
          }
          portable::store(sums + side * kSlice + e, sum);
        });
        const T by = all == 0 ? T(0) : 1 / all;
        S* const out = static_cast<S*>(a.out.data) + h * a.out.strides[1] +
                       i * a.out.strides[2];
        row.each(kSlice, [&](int64_t e) {
          if (e0 + e >= a.d) return;
          T sum = 0;
          for (int side = 0; side < kSides; ++side)
            sum += sums[side * kSlice + e];
          out[e0 + e] = portable::rounded<S>(sum * by);
        });
        if (a.lse && e0 == 0)
          row.put(static_cast<T*>(a.lse) + h * a.t + i,
                  all == 0 ? lowest<T>() : most + fn::log(all));
      },
      (kSides * kSlice + parts.most) * int64_t{sizeof(T)});
}

// Whether all packs of the rows of q, k and v are aligned.
template <class S>
bool in_packs(const PagedAttention& a) {
  constexpr int W = portable::kPack<S>;
  const auto rows = [](const HeadsIn& x) {
    return portable::aligned(static_cast<const S*>(x.data), W) &&
           x.strides[1] % W == 0 && x.strides[2] % W == 0;
  };
  return a.d % W == 0 && rows(a.q) && rows(a.k) && rows(a.v);
}

template <class S, class T = compute_t<S>>
void run_parts(Stream s, const PagedAttention& a, const PagedParts<T>& parts) {
  const int64_t group = ceil_div(a.groups.heads, a.groups.kv_heads);
  if (!in_packs<S>(a)) return paged_parts<4, false, S>(s, a, parts);
  if (group == 1) return paged_parts<1, true, S>(s, a, parts);
  if (group == 2) return paged_parts<2, true, S>(s, a, parts);
  if (group <= 4) return paged_parts<4, true, S>(s, a, parts);
  paged_parts<8, true, S>(s, a, parts);
}

template <class S, class T = compute_t<S>>
void attend(Stream s, const PagedAttention& a) {
  if (a.t == 0 || a.hq == 0) return;
  PagedParts<T> parts(a);
  const int64_t results = parts.n * a.hq * parts.most;
  Scratch scratch(s, parts.n * a.hq * parts.bytes());
  parts.values = scratch.as<T>();
  parts.stats = parts.values + results * parts.pitch;
  for (const int64_t n = parts.n; parts.first < a.t; parts.first += n) {
    parts.n = std::min(n, a.t - parts.first);
    run_parts<S>(s, a, parts);
    paged_merge<S>(s, a, parts);
  }
}

}  // namespace

DT_KERNEL(PagedAttention)
void run(Stream s, const PagedAttention& a) {
  visit_float(a.type, "paged attention", [&]<class S>() { attend<S>(s, a); });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
