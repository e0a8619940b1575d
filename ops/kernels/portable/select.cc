// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/select.h"

#include <algorithm>
#include <bit>
#include <type_traits>
#include <utility>

#include "dtensor/ops/kernels/cross_entropy.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "dtensor/ops/kernels/portable/reduction.h"
#include "dtensor/ops/kernels/portable/row.h"
#include "dtensor/ops/kernels/portable/sort.h"
#include "dtensor/ops/kernels/portable/sorted_places.h"
#include "dtensor/ops/kernels/portable/weighted.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::compute_t;
using portable::each;
using portable::map;
using portable::rounded;
using portable::Row;
using portable::rows;
using portable::Scratch;
using portable::widened;

DT_HD inline int64_t id_of(const TopK& a, int64_t r, int64_t i) {
  return a.ids ? a.ids[r * a.x.n + i] : a.first + i;
}

// Converts a value to a key; the ascending order of keys is that of the result.
// A NaN is largest, and 0 and -0 are equal.
template <class T>
using sort_key_t =
    std::conditional_t<sizeof(T) == 8, uint64_t,
                       std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;
template <class T>
DT_HD sort_key_t<T> sort_key(T v, bool largest) {
  using Key = sort_key_t<T>;
  constexpr Key kAll = static_cast<Key>(~Key{0}),
                kSign = static_cast<Key>(kAll ^ kAll >> 1);
  const Key flip = largest ? kAll : Key{0};
  if constexpr (std::is_integral_v<T>) {
    return static_cast<Key>(flip ^ static_cast<Key>(v) ^ kSign);
  } else {
    const auto x = widened(v);
    const Key bits = std::bit_cast<Key>(x == 0 ? T(0) : v);
    return static_cast<Key>(
        flip ^ (x != x ? kAll : bits ^ (bits & kSign ? kAll : kSign)));
  }
}

// An element of a row. If `at` is -1, it stands for no element, which comes
// last. No two elements are equal, because ids are distinct.
template <class Key>
struct Candidate {
  Key key{};
  int64_t id = 0, at = -1;
  DT_HD bool before(const Candidate& o) const {
    return key != o.key ? key < o.key : id < o.id;
  }
};
struct First {
  template <class C>
  DT_HD C operator()(const C& a, const C& b) const {
    if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
    return b.before(a) ? b : a;
  }
};

template <class Key>
struct Keyed {
  Key key;
  int64_t at;
};

// Sorts by the keys, digit by digit: a stable sort. Returns the one of `from`
// and `to` that has the result.
template <class Key>
Keyed<Key>* sort_digits(int64_t n, Keyed<Key>* from, Keyed<Key>* to) {
  constexpr size_t kDigits = 256;
  int64_t begin[sizeof(Key)][kDigits] = {};
  const auto digit = [](Key key, size_t d) {
    return static_cast<size_t>(key >> 8 * d & 255);
  };
  for (int64_t i = 0; i < n; ++i)
    for (size_t d = 0; d < sizeof(Key); ++d) ++begin[d][digit(from[i].key, d)];
  for (size_t d = 0; d < sizeof(Key); ++d) {
    if (begin[d][digit(from[0].key, d)] == n) continue;  // all are equal
    int64_t next = 0;
    for (int64_t& b : begin[d]) next += std::exchange(b, next);
    for (int64_t i = 0; i < n; ++i)
      to[begin[d][digit(from[i].key, d)]++] = from[i];
    std::swap(from, to);
  }
  return from;
}

// For the host: sorts the indices of each row by their keys. If k is small and
// the row long, its elements are dealt to groups in turn. The k-th best of the
// groups' best elements is a limit: elements that come after it are left out.
constexpr int64_t kFew = 32;
template <class S>
void topk_by_index(Stream s, const TopK& a) {
  using Key = sort_key_t<compute_t<S>>;
  constexpr int64_t kGroups = 2 * kFew;
  const int64_t n = a.x.n, k = a.k;
  const S* from = static_cast<const S*>(a.x.data);
  auto* values = static_cast<S*>(a.values);
  int64_t* value_ids = a.value_ids;
  Scratch order_scratch(s, n * static_cast<int64_t>(sizeof(int64_t)));
  Scratch key_scratch(s, n * static_cast<int64_t>(sizeof(Key)));
  auto* keys = key_scratch.as<Key>();
  for (int64_t r = 0; r < a.x.rows; ++r, from += a.x.stride) {
    auto* order = order_scratch.as<int64_t>();
    for (int64_t i = 0; i < n; ++i)
      keys[i] = sort_key(widened(from[i]), a.largest);
    Key last = ~Key{0};
    if (k > 0 && k <= kFew && n >= 4 * kGroups) {
      Key first[kGroups];
      std::fill_n(first, kGroups, last);
      for (int64_t i = 0; i + kGroups <= n; i += kGroups)
        for (int64_t g = 0; g < kGroups; ++g)
          first[g] = keys[i + g] < first[g] ? keys[i + g] : first[g];
      std::partial_sort(first, first + k, first + kGroups);
      last = first[k - 1];
    }
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) {
      order[count] = i;
      count += keys[i] <= last;
    }
    const auto lower_id = [&](int64_t i, int64_t j) {
      return id_of(a, r, i) < id_of(a, r, j);
    };
    const auto before = [&](int64_t i, int64_t j) {
      return keys[i] != keys[j] ? keys[i] < keys[j] : lower_id(i, j);
    };
    // A heap is faster if it stays small, and sort_digits() for many elements.
    if (k <= std::max<int64_t>(count / 32, 1)) {
      std::partial_sort(order, order + k, order + count, before);
    } else if (count < 2 * kGroups) {
      std::sort(order, order + count, before);
    } else {
      if (a.ids) std::sort(order, order + count, lower_id);
      Scratch pairs(s, 2 * count * static_cast<int64_t>(sizeof(Keyed<Key>)));
      auto* const unsorted = pairs.as<Keyed<Key>>();
      for (int64_t i = 0; i < count; ++i)
        unsorted[i] = {keys[order[i]], order[i]};
      const auto* sorted = sort_digits(count, unsorted, unsorted + count);
      for (int64_t j = 0; j < k; ++j) order[j] = sorted[j].at;
    }
    for (int64_t j = 0; j < k; ++j) {
      *values++ = from[order[j]];
      *value_ids++ = id_of(a, r, order[j]);
    }
  }
}

// For GPUs: finds the first element of the row, then the first of the others,
// and so on. If k is large, sorting is faster.
template <class S>
void topk_typed(Stream s, const TopK& a) {
  using C = Candidate<sort_key_t<compute_t<S>>>;
  rows(
      s, a.x.rows, a.x.n, DT_BODY(Row & row, int64_t r) {
        const int64_t n = a.x.n, k = a.k;
        const S* from = row_at<S>(a.x, r);
        C last;
        for (int64_t j = 0; j < k; ++j) {
          const C best = row.reduce(
              n, C(), First(),
              [&](int64_t i, S v) {
                const C c{sort_key(widened(v), a.largest), id_of(a, r, i), i};
                return j == 0 || last.before(c) ? c : C();
              },
              from);
          row.put(static_cast<S*>(a.values) + r * k + j, from[best.at]);
          row.put(a.value_ids + r * k + j, best.id);
          last = best;
        }
      });
}

// For GPUs: sorts the elements of all rows by id, then by value, then by row,
// with stable sorts.
template <class S>
void topk_sorted(Stream s, const TopK& a) {
  const int64_t n = a.x.n, k = a.k, count = a.x.rows * n;
  Scratch key_scratch(s, 2 * count * static_cast<int64_t>(sizeof(uint64_t)));
  Scratch place_scratch(s, 2 * count * static_cast<int64_t>(sizeof(int64_t)));
  auto* keys = key_scratch.as<uint64_t>();
  auto* places = place_scratch.as<int64_t>();
  auto* other = places + count;
  const auto sort = [&](int bits) {
    portable::sort_by_key(s, count, bits, keys, places, keys + count, other);
    std::swap(places, other);
  };
  each(
      s, count, DT_BODY(int64_t i) {
        places[i] = i;
        if (a.ids) keys[i] = static_cast<uint64_t>(a.ids[i]);
      });
  if (a.ids) sort(63);
  each(
      s, count, DT_BODY(int64_t i) {
        const int64_t at = places[i];
        keys[i] = sort_key(widened(row_at<S>(a.x, at / n)[at % n]), a.largest);
      });
  sort(8 * sizeof(sort_key_t<compute_t<S>>));
  if (a.x.rows > 1) {
    each(
        s, count,
        DT_BODY(int64_t i) { keys[i] = static_cast<uint64_t>(places[i] / n); });
    sort(std::bit_width(static_cast<uint64_t>(a.x.rows)));
  }
  auto* values = static_cast<S*>(a.values);
  each(
      s, a.x.rows * k, DT_BODY(int64_t i) {
        const int64_t at = places[i / k * n + i % k];
        values[i] = row_at<S>(a.x, at / n)[at % n];
        a.value_ids[i] = a.ids ? a.ids[at] : a.first + at % n;
      });
}

// take_elements(): a thread of a GPU takes one element, because rows may be
// short. take_in_order(): the host's thread goes from row to row, without a
// division.
template <class S>
void take_elements(Stream s, const TakeRows& a) {
  if (a.share > 1)
    return map(
        s, a.x.rows * a.k, static_cast<S*>(a.out), DT_BODY(int64_t e) {
          const int64_t r = e / a.k,
                        id = a.index[r / a.share * a.k + e - r * a.k];
          return id >= a.lo && id < a.hi ? row_at<S>(a.x, r)[id - a.lo] : S();
        });
  map(
      s, a.x.rows * a.k, static_cast<S*>(a.out),
      DT_BODY(int64_t e, int64_t id) {
        return id >= a.lo && id < a.hi ? row_at<S>(a.x, e / a.k)[id - a.lo]
                                       : S();
      },
      a.index);
}
template <class S>
void take_in_order(const TakeRows& a) {
  const auto lo = static_cast<uint64_t>(a.lo),
             n = static_cast<uint64_t>(std::max<int64_t>(a.hi - a.lo, 0));
  const S* from = static_cast<const S*>(a.x.data);
  const int64_t* index = a.index;
  S* to = static_cast<S*>(a.out);
  const int64_t k = a.k;
  Ends outside;
  for (int64_t r = 0; r < a.x.rows; ++r, from += a.x.stride) {
    if (r > 0 && r % a.share == 0) index += a.k;
    if (!a.ends && n > 0) {  // without a branch: any index may be outside
      const S none{};
      const S* const row = from;
#pragma GCC ivdep
      for (int64_t j = 0; j < k; ++j) {
        const uint64_t at = static_cast<uint64_t>(index[j]) - lo;
        to[j] = *(at < n ? row + at : &none);
      }
      to += k;
      continue;
    }
    for (int64_t j = 0; j < a.k; ++j) {
      const int64_t id = index[j];
      const uint64_t at = static_cast<uint64_t>(id) - lo;
      if (at >= n) [[unlikely]]
        outside = Wider()(outside, Ends::of(id));
      *to++ = at < n ? from[at] : S();
    }
  }
  if (a.ends) outside.write(a.ends);
}

// a combined with b. Integers wrap around.
template <class Op, class S>
DT_HD inline S combined(S a, S b) {
  const auto x = widened(a), y = widened(b);
  if constexpr (std::is_same_v<Op, Sum>)
    return rounded<S>(sum_of(x, y));
  else if constexpr (std::is_integral_v<S> && std::is_same_v<Op, Prod>)
    return (fn::Int<S>(x) * fn::Int<S>(y)).v;
  else
    return rounded<S>(Op()(x, y));
}

// Combines row r of dy with dx. Returns `outside`, merged with the ends of the
// row's ids outside of [lo, hi). `outside` is passed by value, to stay in
// registers.
template <class Op, class S>
Ends put_row(const PutRows& a, int64_t r, Ends outside) {
  const S* dy = row_at<S>(a.dy, r);
  const int64_t* index = a.index + r * a.dy.n;
  const int64_t lo = a.lo, hi = a.hi;
  S* dx = static_cast<S*>(a.dx) + r * (hi - lo);
  for (int64_t j = 0; j < a.dy.n; ++j) {
    const int64_t id = index[j];
    if (id >= lo && id < hi) [[likely]]
      dx[id - lo] = combined<Op>(dx[id - lo], dy[j]);
    else
      outside = Wider()(outside, Ends::of(id));
  }
  return outside;
}
template <class Op, class S>
void put_in_order(const PutRows& a) {
  const int64_t n = a.hi - a.lo;
  auto* dx = static_cast<S*>(a.dx);
  Ends outside;
  for (int64_t r = 0; r < a.dy.rows; ++r) {
    if (!a.accumulate) std::fill_n(dx + r * n, n, S());
    outside = put_row<Op, S>(a, r, outside);
  }
  if (a.ends) outside.write(a.ends);
}

// Sorts the positions in index [rows, k]. The key of a position is the number
// of the element of [rows, hi - lo] that its id selects. Positions with an id
// outside [lo, hi) get the key `none`, which is the largest.
inline void sort_by_element(Stream s, const LastPlaces& a, int64_t none,
                            SortedPlaces& sorted) {
  uint64_t* const keys = sorted.unsorted_keys();
  int64_t* const places = sorted.unsorted_places();
  each(
      s, a.rows * a.k, DT_BODY(int64_t i) {
        const int64_t r = i / a.k, id = row_at(a.index, r, a.stride)[i % a.k];
        keys[i] = static_cast<uint64_t>(
            id >= a.lo && id < a.hi ? r * (a.hi - a.lo) + id - a.lo : none);
        places[i] = i;
      });
  sorted.sort(none);
}

// For GPUs: one thread combines all elements of dy that go to one element of
// dx, in the order of their row.
template <class Op, class S>
void put_sorted(Stream s, const PutRows& a) {
  const int64_t k = a.dy.n, count = a.dy.rows * k,
                none = a.dy.rows * (a.hi - a.lo);
  auto* dx = static_cast<S*>(a.dx);
  if (!a.accumulate)
    map(
        s, none, dx, DT_BODY(int64_t) { return S(); });
  if (count == 0 || none <= 0) return;
  SortedPlaces sorted(s, count);
  sort_by_element(s,
                  {.rows = a.dy.rows,
                   .k = k,
                   .index = a.index,
                   .stride = k,
                   .lo = a.lo,
                   .hi = a.hi},
                  none, sorted);
  const uint64_t* keys = sorted.keys();
  const int64_t* places = sorted.places();
  each(
      s, count, DT_BODY(int64_t i) {
        const uint64_t key = keys[i];
        if (key == static_cast<uint64_t>(none) || (i > 0 && keys[i - 1] == key))
          return;
        S total = dx[key];
        for (int64_t e = i; e < count && keys[e] == key; ++e)
          total = combined<Op>(total,
                               row_at<S>(a.dy, places[e] / k)[places[e] % k]);
        dx[key] = total;
      });
}

template <class Op>
void put_kind(Stream s, const PutRows& a) {
  visit_numbers(a.dy.type, "scatter_add", [&]<class S>() {
    if constexpr (portable::kManyPasses)
      put_in_order<Op, S>(a);
    else
      put_sorted<Op, S>(s, a);
  });
}

inline void last_sorted(Stream s, const LastPlaces& a) {
  const int64_t count = a.rows * a.k, none = a.rows * (a.hi - a.lo);
  if (count == 0 || none <= 0) return;
  SortedPlaces sorted(s, count);
  sort_by_element(s, a, none, sorted);
  const uint64_t* keys = sorted.keys();
  const int64_t* places = sorted.places();
  each(
      s, count, DT_BODY(int64_t i) {
        const uint64_t key = keys[i];
        if (key == static_cast<uint64_t>(none) ||
            (i + 1 < count && keys[i + 1] == key))
          return;
        a.places[key] = a.first + places[i] % a.k;
      });
}

template <class S>
void count_before(Stream s, const CountBefore& a) {
  each(
      s, a.x.rows * a.k, DT_BODY(int64_t i) {
        const S* row = row_at<S>(a.x, i / a.k);
        const auto v = widened(static_cast<const S*>(a.values)[i]);
        // All elements in front of `count` come before v, and none from `end`
        // on.
        int64_t count = 0, end = a.x.n;
        while (count < end) {
          const int64_t middle = count + (end - count) / 2;
          const auto e = widened(row[middle]);
          if (v != v || e < v || (a.equal && e == v))
            count = middle + 1;
          else
            end = middle;
        }
        a.out[i] = count;
      });
}

// Adds n to a number to which other lanes and rows may add at the same time.
#if defined(__CUDACC__) || defined(DT_CUDA_EMULATED)
__device__ inline void add_to(int32_t* to, int32_t n) { atomicAdd(to, n); }
__device__ inline void add_to(int64_t* to, int32_t n) {
  atomicAdd(reinterpret_cast<unsigned long long*>(to),
            static_cast<unsigned long long>(n));
}
#else
template <class C>
void add_to(C* to, int32_t n) {
  *to += n;
}
#endif

// Digit `round` of a key: of the value, or of the id. Its place is `shift`.
struct Digit {
  bool of_value;
  int shift;
  Digit(const SelectRound& a, int64_t round)
      : of_value(round < size_of(a.x.type)),
        shift(static_cast<int>(
            8 *
            ((of_value ? size_of(a.x.type) : select_rounds(a.x.type, a.size)) -
             round - 1))) {}
  // Whether two keys have the same digits in front of this one.
  template <class Key>
  DT_HD bool agree(Key a, Key b) const {
    return (a ^ b) >> shift >> 8 == 0;
  }
};

// Chooses the digit that the element of each rank has, if there is one.
template <class C>
void choose_digits(Stream s, const SelectRound& a) {
  const Digit digit(a, a.round - 1);
  const bool last = a.round == select_rounds(a.x.type, a.size);
  each(
      s, a.x.rows * a.k, DT_BODY(int64_t i) {
        const C* counts = static_cast<const C*>(a.counts) + i * a.kDigits;
        int64_t rank = a.ranks[i], d = 0;
        while (d < a.kDigits && rank >= counts[d]) rank -= counts[d++];
        if (rank >= 0 && d < a.kDigits) {
          a.ranks[i] = rank;
          (digit.of_value ? a.keys : a.found)[i] |= d << digit.shift;
        }
        if (last && a.ranks[i] != 0) a.found[i] = a.ranks[i];
      });
}

// Counts this part's elements by a digit. A GPU has several blocks for a long
// row. The host has one pass for neighbours with the same digits so far.
template <class S, class C>
void count_digits(Stream s, const SelectRound& a) {
  using Key = sort_key_t<S>;
  constexpr int64_t kDigits = SelectRound::kDigits;
  const int64_t chunk = portable::kManyPasses ? int64_t{1} << 30 : 1 << 16,
                chunks = (a.x.n + chunk - 1) / chunk;
  const Digit digit(a, a.round);
  map(
      s, a.x.rows * a.k * kDigits, static_cast<C*>(a.counts),
      DT_BODY(int64_t) { return C(0); });
  rows(
      s, a.x.rows * a.k * chunks, std::min(a.x.n, chunk),
      DT_BODY(Row & row, int64_t at) {
        const int64_t i = at / chunks, lo = at % chunks * chunk;
        const int64_t n = a.x.n - lo < chunk ? a.x.n - lo : chunk;
        C* const counts = static_cast<C*>(a.counts) + i * kDigits;
        if (portable::kManyPasses && i % a.k > 0 &&
            a.keys[i] == a.keys[i - 1] && a.found[i] == a.found[i - 1]) {
          row.copy(kDigits, counts, static_cast<const C*>(counts) - kDigits);
          return;
        }
        const auto key = static_cast<Key>(a.keys[i]);
        const int64_t found = a.found[i];
        auto* const here = row.template fast<int32_t>();
        row.fill(kDigits, here, 0);
        row.each(
            n,
            [&](int64_t j, S v) {
              const Key mine = sort_key(v, false);
              if (digit.of_value) {
                if (digit.agree(mine, key))
                  add_to(here + (mine >> digit.shift & 255), 1);
              } else if (mine == key) {
                const int64_t id = a.ids ? a.ids[lo + j] : a.first + lo + j;
                if (digit.agree(id, found))
                  add_to(here + (id >> digit.shift & 255), 1);
              }
            },
            row_at<S>(a.x, i / a.k) + lo);
        row.each(kDigits, [&](int64_t d) {
          if (here[d] > 0) add_to(counts + d, here[d]);
        });
      },
      kDigits * static_cast<int64_t>(sizeof(int32_t)));
}

// The kernel that finds the ends of the indices, n in all, that are outside of
// [lo, hi). Only GPUs run it: it is a second pass over the indices.
template <class Kernel>
CeRange outside(const Kernel& a, int64_t n) {
  return {.n = n,
          .targets = a.index,
          .ignored = a.lo,
          .ignores = a.hi - a.lo,
          .ends = a.ends};
}

}  // namespace

DT_KERNEL(TopK)
void run(Stream s, const TopK& a) {
  visit_numbers(a.x.type, "topk", [&]<class S>() {
    if constexpr (portable::kManyPasses)
      topk_by_index<S>(s, a);
    else if (a.k > kFew)
      topk_sorted<S>(s, a);
    else
      topk_typed<S>(s, a);
  });
}

DT_KERNEL(TakeRows)
void run(Stream s, const TakeRows& a) {
  if (!portable::kManyPasses && a.ends)
    defined_kernels().run(s, outside(a, a.x.rows / a.share * a.k));
  if (a.weights)
    return visit_float(a.x.type, "gather", [&]<class S>() {
#ifndef __CUDACC__
      if constexpr (portable::kManyPasses)
        if (a.share >= 4 && a.k * a.taps >= a.hi - a.lo)
          return take_weighted_columns<S>(s, a);
#endif
      take_weighted<S>(s, a);
    });
  visit(a.x.type, [&]<class S>() {
    if constexpr (portable::kManyPasses)
      take_in_order<S>(a);
    else
      take_elements<S>(s, a);
  });
}

DT_KERNEL(PutRows)
void run(Stream s, const PutRows& a) {
  if (!portable::kManyPasses && a.ends)
    defined_kernels().run(s, outside(a, a.dy.rows * a.dy.n));
  switch (a.kind) {
    case ReduceKind::kSum:
      return put_kind<Sum>(s, a);
    case ReduceKind::kMax:
      return put_kind<Max>(s, a);
    case ReduceKind::kMin:
      return put_kind<Min>(s, a);
    case ReduceKind::kProd:
      return put_kind<Prod>(s, a);
  }
}

DT_KERNEL(LastPlaces)
void run(Stream s, const LastPlaces& a) {
  if constexpr (!portable::kManyPasses) return last_sorted(s, a);
  each(
      s, a.rows, DT_BODY(int64_t r) {
        const int64_t* index = row_at(a.index, r, a.stride);
        int64_t* to = row_at(a.places, r, a.hi - a.lo);
        for (int64_t j = 0; j < a.k; ++j)
          if (index[j] >= a.lo && index[j] < a.hi)
            to[index[j] - a.lo] = a.first + j;
      });
}

DT_KERNEL(CountBefore)
void run(Stream s, const CountBefore& a) {
  visit_numbers(a.x.type, "searchsorted",
                [&]<class S>() { count_before<S>(s, a); });
}

DT_KERNEL(SelectRound)
void run(Stream s, const SelectRound& a) {
  visit_ids(a.count_type, "kth_index", [&]<class C>() {
    if (a.round > 0) choose_digits<C>(s, a);
    if (a.round == select_rounds(a.x.type, a.size)) return;
    visit_numbers(a.x.type, "kth_index",
                  [&]<class S>() { count_digits<S, C>(s, a); });
  });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
