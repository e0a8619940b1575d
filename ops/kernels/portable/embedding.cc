// SPDX-License-Identifier: Apache-2.0
// Rows of a table by index.
#include <bit>

#include "dtensor/device/portable/sort.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "dtensor/ops/kernels/portable/row.h"

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

template <class T, class I>
void gather(Stream s, const Embedding& a) {
  rows(
      s, a.count, a.table.n, DT_BODY(Row & row, int64_t i) {
        const int64_t id = static_cast<const I*>(a.ids)[i], n = a.table.n;
        T* to = row_at(static_cast<T*>(a.out), i, n);
        if (id >= a.lo && id < a.hi)
          row.copy(n, to, row_at<T>(a.table, id - a.lo));
        else
          row.fill(n, to, T());
      });
}

template <class T, class I>
void write(Stream s, const WriteRows& a) {
  rows(
      s, a.outer * a.count, a.n, DT_BODY(Row & row, int64_t i) {
        const int64_t id = static_cast<const I*>(a.ids)[i % a.count];
        if (id < a.lo || id >= a.hi) return;
        const int64_t to = i / a.count * a.size + a.at + id - a.lo;
        row.copy(a.n, static_cast<T*>(a.to) + to * a.n,
                 static_cast<const T*>(a.rows) + i * a.n);
      });
}

// Converts ids to keys to sort by: rows of the table, and one more than the
// last row for ids outside of the range.
template <class I>
void number(Stream s, int64_t count, const I* ids, int64_t lo, int64_t hi,
            uint64_t* keys, int64_t* places) {
  each(
      s, count, DT_BODY(int64_t i) {
        const int64_t id = ids[i];
        keys[i] = static_cast<uint64_t>((id >= lo && id < hi ? id : hi) - lo);
        places[i] = i;
      });
}

// The end of the equal keys that start at i, by steps that double, then halve.
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

// Adds the rows dy[places[i]] to table[keys[i]], for sorted keys. The lanes at
// the first of equal keys add them all.
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

// Many rows at once: sorts the ids, so that the rows of each come in order.
template <class S, class G, class I>
void add_sorted(Stream s, const EmbeddingBackward& a) {
  const int64_t ids = a.hi - a.lo, count = a.dy.rows;
  Scratch key_scratch(s, 2 * count * static_cast<int64_t>(sizeof(uint64_t)));
  Scratch place_scratch(s, 2 * count * static_cast<int64_t>(sizeof(int64_t)));
  auto* keys = key_scratch.as<uint64_t>();
  auto* places = place_scratch.as<int64_t>();
  number(s, count, static_cast<const I*>(a.ids), a.lo, a.hi, keys, places);
  portable::sort_by_key(s, count, std::bit_width(static_cast<uint64_t>(ids)),
                        keys, places, keys + count, places + count);
  add_runs(s, count, a.dy.n, keys + count, places + count,
           static_cast<const S*>(a.dy.data), a.dy.stride, ids,
           static_cast<G*>(a.dtable));
}

// One row after the other.
template <class S, class G, class I>
void add_in_order(Stream s, const EmbeddingBackward& a) {
  rows(
      s, a.dy.rows, a.dy.n, DT_BODY(Row & row, int64_t i) {
        const int64_t id = static_cast<const I*>(a.ids)[i], n = a.dy.n;
        if (id < a.lo || id >= a.hi) return;
        G* to = static_cast<G*>(a.dtable) + (id - a.lo) * n;
        row.map(
            n, to, [](auto sum, auto v) { return sum_of(sum, v); }, to,
            row_at<S>(a.dy, i));
      });
}

template <class S, class G>
void backward(Stream s, const EmbeddingBackward& a) {
  const int64_t n = (a.hi - a.lo) * a.dy.n;
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

}  // namespace

void PortableKernels::run(Stream s, const Embedding& a) const {
  visit_ids(a.ids_type, "embedding", [&]<class I>() {
    visit(a.table.type, [&]<class T>() { gather<T, I>(s, a); });
  });
}

void PortableKernels::run(Stream s, const EmbeddingBackward& a) const {
  const DType t = a.dy.type;
  if (a.dtable_type != t && !(is_float(t) && a.dtable_type == stat_of(t)))
    no_kernel("embedding backward", a.dtable_type);
  visit_numbers(t, "embedding backward", [&]<class S>() {
    if (a.dtable_type == t)
      backward<S, S>(s, a);
    else
      backward<S, compute_t<S>>(s, a);
  });
}

void PortableKernels::run(Stream s, const WriteRows& a) const {
  visit_ids(a.ids_type, "write rows", [&]<class I>() {
    visit_stored(a.type, [&]<class T>() { write<T, I>(s, a); });
  });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
