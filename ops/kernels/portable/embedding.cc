// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/embedding.h"

#include <algorithm>

#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "dtensor/ops/kernels/portable/row.h"
#include "dtensor/ops/kernels/portable/sorted_places.h"
#include "dtensor/placement/exact.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::compute_t;
using portable::each;
using portable::map;
using portable::rounded;
using portable::Row;
using portable::rows;
using portable::widened;

// Calls body(row, o, i) for each row i of each matrix o of `outer`, [count, n].
template <class Body>
void matrices(Stream s, int64_t outer, int64_t count, int64_t n, Body body) {
  if constexpr (portable::kManyPasses)  // which saves a division for each row
    rows(
        s, outer, count * n, DT_BODY(Row & row, int64_t o) {
          for (int64_t i = 0; i < count; ++i) body(row, o, i);
        });
  else
    rows(
        s, outer * count, n,
        DT_BODY(Row & row, int64_t r) { body(row, r / count, r % count); });
}

template <class T, class I>
void gather(Stream s, const Embedding& a) {
  const T zero{};
  if (portable::kManyPasses && a.table.n == 1)
    return rows(
        s, a.outer, a.count, DT_BODY(Row & row, int64_t o) {
          const int64_t lo = a.lo, hi = a.hi, stride = a.table.stride;
          const T* from = row_at<T>(a.table, o * a.size + a.at);
          const auto* ids = static_cast<const I*>(a.ids);
          T* to = static_cast<T*>(a.out) + o * a.count;
          row.each(a.count, [&](int64_t i) {
            const int64_t id = ids[i];
            to[i] = id >= lo && id < hi ? from[(id - lo) * stride] : zero;
          });
        });
  matrices(
      s, a.outer, a.count, a.table.n, DT_BODY(Row & row, int64_t o, int64_t i) {
        const int64_t id = static_cast<const I*>(a.ids)[i], n = a.table.n;
        T* to = row_at(static_cast<T*>(a.out), o * a.count + i, n);
        if (id >= a.lo && id < a.hi)
          row.copy(n, to, row_at<T>(a.table, o * a.size + a.at + id - a.lo));
        else
          row.fill(n, to, zero);
      });
}

// The sums of bags of rows, four of which are added at once.
template <class T, class I>
void gather_bags(Stream s, const Embedding& a) {
  matrices(
      s, a.outer, a.count, a.table.n, DT_BODY(Row & row, int64_t o, int64_t i) {
        const I* ids = static_cast<const I*>(a.ids) + i * a.bag;
        const int64_t n = a.table.n;
        T* to = row_at(static_cast<T*>(a.out), o * a.count + i, n);
        // The row that id j of the bag names, or null.
        const auto named = [&](int64_t j) -> const T* {
          if (j >= a.bag || ids[j] < a.lo || ids[j] >= a.hi) return nullptr;
          return row_at<T>(a.table, o * a.size + a.at + ids[j] - a.lo);
        };
        row.fill(n, to, T(0));
        for (int64_t j = 0; j < a.bag; j += 4)
          row.update(
              n, to,
              [](const auto& sum, const auto& v, const auto& w, const auto& x,
                 const auto& y) { return sum + v + w + x + y; },
              static_cast<const T*>(to), named(j), named(j + 1), named(j + 2),
              named(j + 3));
      });
}

template <class T, class I>
void write(Stream s, const WriteRows& a) {
  matrices(
      s, a.outer, a.count, a.n, DT_BODY(Row & row, int64_t o, int64_t i) {
        const int64_t id = static_cast<const I*>(a.ids)[i];
        if (id < a.lo || id >= a.hi) return;
        const int64_t to = o * a.size + a.at + id - a.lo;
        row.copy(a.n, static_cast<T*>(a.to) + to * a.n,
                 static_cast<const T*>(a.rows) + (o * a.count + i) * a.n);
      });
}

// Converts the ids of dy's rows to keys for sorting: the rows of dtable that
// they select, or one more than dtable's last row for ids outside of [lo, hi).
template <class I>
void number(Stream s, const EmbeddingBackward& a, int64_t count, uint64_t* keys,
            int64_t* places) {
  each(
      s, a.outer * count, DT_BODY(int64_t i) {
        const int64_t id = static_cast<const I*>(a.ids)[i % count];
        const int64_t key = id >= a.lo && id < a.hi
                                ? i / count * a.size + a.at + id - a.lo
                                : a.outer * a.size;
        keys[i] = static_cast<uint64_t>(key);
        places[i] = i;
      });
}

// Finds the end of the equal keys from i on, by steps that double, then halve.
DT_HD inline int64_t end_of_run(int64_t i, int64_t count,
                                const uint64_t* keys) {
  const uint64_t key = keys[i];
  int64_t in = i, step = 1;
  for (; in + step < count && keys[in + step] == key; step *= 2) in += step;
  int64_t out = in + step < count ? in + step : count;
  while (out - in > 1) {
    const int64_t middle = in + (out - in) / 2;
    (keys[middle] == key ? in : out) = middle;
  }
  return out;
}

// Adds row places[i] of dy to row keys[i] of the table, for sorted keys. The
// lanes at the first of several equal keys add the rows of all of them.
template <class S, class G>
void add_runs(Stream s, int64_t count, int64_t h, const uint64_t* keys,
              const int64_t* places, const S* dy, int64_t stride,
              int64_t table_rows, G* table) {
  const auto none = static_cast<uint64_t>(table_rows);
  rows(
      s, count, h, DT_BODY(Row & row, int64_t i) {
        const uint64_t key = keys[i];
        if (key == none || (i > 0 && keys[i - 1] == key)) return;
        const int64_t end = end_of_run(i, count, keys);
        G* const to = table + static_cast<int64_t>(key) * h;
        row.each(h, [&](int64_t j) {
          compute_t<G> sum = widened(to[j]);
          DT_UNROLL(4)
          for (int64_t k = i; k < end; ++k)
            sum = sum_of(sum, static_cast<compute_t<G>>(
                                  widened(dy[places[k] * stride + j])));
          to[j] = rounded<G>(sum);
        });
      });
}

template <class G>
void clear(Stream s, int64_t n, G* table) {
  map(
      s, n, table, DT_BODY(int64_t) { return G(); });
}

// For GPUs: sorts the ids, so that the rows for the same id are added in order.
template <class S, class G, class I>
void add_sorted(Stream s, const EmbeddingBackward& a) {
  const int64_t to = a.outer * a.size, count = a.dy.rows;
  SortedPlaces sorted(s, count);
  number<I>(s, a, count / a.outer, sorted.unsorted_keys(),
            sorted.unsorted_places());
  sorted.sort(to);
  add_runs(s, count, a.dy.n, sorted.keys(), sorted.places(),
           static_cast<const S*>(a.dy.data), a.dy.stride, to,
           static_cast<G*>(a.dtable));
}

// For the CPU: adds one row after the other.
template <class S, class G, class I>
void add_in_order(Stream s, const EmbeddingBackward& a) {
  const int64_t count = a.dy.rows / a.outer;
  if (a.dy.n == 1)
    return rows(
        s, a.outer, count, DT_BODY(Row & row, int64_t o) {
          const int64_t lo = a.lo, hi = a.hi, stride = a.dy.stride;
          const S* from = row_at<S>(a.dy, o * count);
          const auto* ids = static_cast<const I*>(a.ids);
          G* to = static_cast<G*>(a.dtable) + o * a.size + a.at;
          row.each(count, [&](int64_t i) {
            const int64_t id = ids[i];
            if (id < lo || id >= hi) return;
            G& sum = to[id - lo];
            sum = rounded<G>(
                sum_of(widened(sum),
                       static_cast<compute_t<G>>(widened(from[i * stride]))));
          });
        });
  matrices(
      s, a.outer, count, a.dy.n, DT_BODY(Row & row, int64_t o, int64_t i) {
        const int64_t id = static_cast<const I*>(a.ids)[i], n = a.dy.n;
        if (id < a.lo || id >= a.hi) return;
        G* to = static_cast<G*>(a.dtable) + (o * a.size + a.at + id - a.lo) * n;
        row.map(
            n, to, [](auto sum, auto v) { return sum_of(sum, v); }, to,
            row_at<S>(a.dy, o * count + i));
      });
}

template <class S, class G>
void backward(Stream s, const EmbeddingBackward& a) {
  const int64_t n = a.outer * a.size * a.dy.n;
  if (n <= 0) return;
  if (!a.accumulate) clear(s, n, static_cast<G*>(a.dtable));
  if (a.dy.rows == 0) return;
  visit_ids(a.ids_type, "embedding backward", [&]<class I>() {
    if constexpr (portable::kManyPasses)
      add_in_order<S, G, I>(s, a);
    else
      add_sorted<S, G, I>(s, a);
  });
}

// Adds to exact sums, on the CPU.
void add_exact(const EmbeddingBackward& a) {
  if (!portable::kManyPasses || a.dy.type == DType::kF64)
    no_kernel("embedding backward", a.dtable_type);
  if (a.outer == 0) return;
  const int64_t count = a.dy.rows / a.outer, n = a.dy.n;
  Exact* const sums = static_cast<Exact*>(a.dtable);
  if (!a.accumulate) std::fill_n(sums, a.outer * a.size * n, Exact());
  visit_ids(a.ids_type, "embedding backward", [&]<class I>() {
    visit_float(a.dy.type, "embedding backward", [&]<class S>() {
      for (int64_t o = 0; o < a.outer; ++o)
        for (int64_t i = 0; i < count; ++i) {
          const int64_t id = static_cast<const I*>(a.ids)[i];
          if (id < a.lo || id >= a.hi) continue;
          const S* from = row_at<S>(a.dy, o * count + i);
          Exact* to = sums + (o * a.size + a.at + id - a.lo) * n;
          for (int64_t j = 0; j < n; ++j)
            to[j].add(static_cast<double>(widened(from[j])));
        }
    });
  });
}

}  // namespace

DT_KERNEL(Embedding)
void run(Stream s, const Embedding& a) {
  visit_ids(a.ids_type, "embedding", [&]<class I>() {
    if (a.bag == 1)
      return visit(a.table.type, [&]<class T>() { gather<T, I>(s, a); });
    switch (a.table.type) {
      case DType::kF32:
        return gather_bags<float, I>(s, a);
      case DType::kF64:
        return gather_bags<double, I>(s, a);
      default:
        no_kernel("embedding_bag", a.table.type);
    }
  });
}

DT_KERNEL(EmbeddingBackward)
void run(Stream s, const EmbeddingBackward& a) {
  const DType t = a.dy.type;
  if (a.dtable_type == DType::kExact) return add_exact(a);
  if (a.dtable_type != t && !(is_float(t) && a.dtable_type == stat_of(t)))
    no_kernel("embedding backward", a.dtable_type);
  visit_numbers(t, "embedding backward", [&]<class S>() {
    if (a.dtable_type == t)
      backward<S, S>(s, a);
    else
      backward<S, compute_t<S>>(s, a);
  });
}

DT_KERNEL(WriteRows)
void run(Stream s, const WriteRows& a) {
  visit_ids(a.ids_type, "write rows", [&]<class I>() {
    visit_stored(a.type, [&]<class T>() { write<T, I>(s, a); });
  });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
