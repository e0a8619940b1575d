// Elements of rows, selected by rank or by index.
#include "dtensor/ops/kernels/select.h"

#include <bit>
#include <type_traits>
#include <utility>

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

// An element of a row. -1 stands for no element, which comes last.
template <class T>
struct Candidate {
  T value{};
  int64_t id = 0, at = -1;
};

// Whether one element comes before another in the result. No two elements are
// equal in this order.
struct First {
  bool largest;
  template <class T>
  DT_HD static bool above(const T& a, const T& b) {
    return a > b || (a != a && b == b);
  }
  template <class T>
  DT_HD bool before(const Candidate<T>& a, const Candidate<T>& b) const {
    if (a.at < 0 || b.at < 0) return b.at < 0 && a.at >= 0;
    if (above(a.value, b.value)) return largest;
    if (above(b.value, a.value)) return !largest;
    return a.id < b.id;
  }
  template <class T>
  DT_HD Candidate<T> operator()(const Candidate<T>& a,
                                const Candidate<T>& b) const {
    return before(b, a) ? b : a;
  }
};

// Finds the first element of the row, then the first of the rest, and so on. If
// k is large, sorting is faster.
constexpr int64_t kFew = 32;
template <class S>
void topk_typed(Stream s, const TopK& a) {
  using C = Candidate<compute_t<S>>;
  rows(
      s, a.x.rows, a.x.n, DT_BODY(Row & row, int64_t r) {
        const int64_t n = a.x.n, k = a.k;
        const S* from = row_at<S>(a.x, r);
        const First order{a.largest};
        C last;
        for (int64_t j = 0; j < k; ++j) {
          const C best = row.reduce(
              n, C(), order,
              [&](int64_t i, S v) {
                const C c{widened(v), a.ids ? a.ids[r * n + i] : a.first + i,
                          i};
                return j == 0 || order.before(last, c) ? c : C();
              },
              from);
          row.put(static_cast<S*>(a.values) + r * k + j, from[best.at]);
          row.put(a.value_ids + r * k + j, best.id);
          last = best;
        }
      });
}

// The value as a number that is sorted as values are: a NaN is largest, and the
// zeros are equal.
template <class T>
DT_HD uint64_t sort_key(T v) {
  constexpr uint64_t kSign = uint64_t{1} << 63;
  if constexpr (std::is_integral_v<T>) {
    return static_cast<uint64_t>(static_cast<int64_t>(v)) ^ kSign;
  } else {
    if (v != v) return ~uint64_t{0};
    const double d = v == 0 ? 0.0 : static_cast<double>(v);
    const auto bits = std::bit_cast<uint64_t>(d);
    return bits & kSign ? ~bits : bits ^ kSign;
  }
}

// Sorts the elements of all rows: by id, then by value, then by row, which are
// stable sorts.
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
        const uint64_t key = sort_key(widened(row_at<S>(a.x, at / n)[at % n]));
        keys[i] = a.largest ? ~key : key;
      });
  sort(64);
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

template <class S>
void take_typed(Stream s, const TakeRows& a) {
  map(
      s, a.x.rows * a.k, static_cast<S*>(a.out),
      DT_BODY(int64_t e, int64_t id) {
        return id >= a.lo && id < a.hi ? row_at<S>(a.x, e / a.k)[id - a.lo]
                                       : S();
      },
      a.index);
}

template <class S>
void put_typed(Stream s, const PutRows& a) {
  auto* dx = static_cast<S*>(a.dx);
  map(
      s, a.dy.rows * (a.hi - a.lo), dx, DT_BODY(int64_t) { return S(); });
  // An index may occur twice, so one thread handles a whole row.
  each(
      s, a.dy.rows, DT_BODY(int64_t r) {
        const S* dy = row_at<S>(a.dy, r);
        for (int64_t j = 0; j < a.dy.n; ++j) {
          const int64_t id = a.index[r * a.dy.n + j];
          if (id < a.lo || id >= a.hi) continue;
          S& sum = dx[r * (a.hi - a.lo) + id - a.lo];
          sum = rounded<S>(sum_of(widened(sum), widened(dy[j])));
        }
      });
}

}  // namespace

void PortableKernels::run(Stream s, const TopK& a) const {
  if (a.x.type == DType::kBool) no_kernel("topk", a.x.type);
  visit(a.x.type, [&]<class S>() {
    if constexpr (!std::is_same_v<S, bool>) {
      if (a.k > kFew)
        topk_sorted<S>(s, a);
      else
        topk_typed<S>(s, a);
    }
  });
}

void PortableKernels::run(Stream s, const TakeRows& a) const {
  visit(a.x.type, [&]<class S>() { take_typed<S>(s, a); });
}

void PortableKernels::run(Stream s, const PutRows& a) const {
  if (a.hi <= a.lo) return;
  visit_numbers(a.dy.type, "scatter_add",
                [&]<class S>() { put_typed<S>(s, a); });
}

void PortableKernels::run(Stream s, const LastPlaces& a) const {
  each(
      s, a.rows, DT_BODY(int64_t r) {
        const int64_t* index = row_at(a.index, r, a.stride);
        int64_t* to = row_at(a.places, r, a.hi - a.lo);
        for (int64_t j = 0; j < a.k; ++j)
          if (index[j] >= a.lo && index[j] < a.hi)
            to[index[j] - a.lo] = a.first + j;
      });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
