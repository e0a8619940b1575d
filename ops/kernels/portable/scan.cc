// SPDX-License-Identifier: Apache-2.0
// Running sums, products, maxima and minima of rows, and running sums of
// exponentials.
#include <type_traits>

#include "dtensor/ops/functions/math.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "dtensor/ops/kernels/portable/reduction.h"
#include "dtensor/ops/kernels/reduce.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::compute_t;
using portable::lowest;
using portable::rounded;
using portable::Row;
using portable::rows;
using portable::Scratch;
using portable::widened;

// The type of the running values. Sums and products of integers are unsigned,
// and wrap around.
template <class Op, class S>
using scan_t = std::conditional_t<
    portable::is_floating<S>, double,
    std::conditional_t<std::is_same_v<Op, Max> || std::is_same_v<Op, Min>,
                       int64_t, uint64_t>>;

struct Scan {
  int64_t count, n;  // number and length of rows
  bool reverse;
};

// sum * exp(most). `most` is the largest exponent that has been added.
struct LogSum {
  double most, sum;
};
struct AddLogSums {
  DT_HD LogSum operator()(const LogSum& a, const LogSum& b) const {
    const bool first = a.most > b.most || a.most != a.most;
    const LogSum more = first ? a : b, less = first ? b : a;
    // Avoids inf - inf for equal infinities.
    const double factor =
        less.most == more.most ? 1 : fn::exp(less.most - more.most);
    return {more.most, more.sum + less.sum * factor};
  }
};

template <class Op, class A>
DT_HD constexpr A nothing() {
  if constexpr (std::is_same_v<Op, AddLogSums>)
    return {lowest<double>(), 0};
  else
    return identity<Op, A>();
}

// The scans below get their elements from one of the two structs that follow,
// and store its results. In both, get(r, i) is element i of row r, result()
// makes a number for `out` from the running value there, and each() and
// reduce() are those of a Row, for the n elements from `from` on.
//
// The elements are numbers.
template <class S, class A>
struct Numbers {
  using Stored = S;
  DT_HD A get(int64_t r, int64_t i) const {
    return Itself::get<A>(x[r * stride + i]);
  }
  DT_HD compute_t<S> result(int64_t, int64_t, const A& a) const {
    return static_cast<compute_t<S>>(a);
  }
  template <class R, class F>
  DT_HD void each(R& row, int64_t r, int64_t from, int64_t n, F f) const {
    row.each(
        n, [&](int64_t i, S e) { f(i, Itself::get<A>(e)); },
        x + r * stride + from);
  }
  template <class Op, class R>
  DT_HD A reduce(R& row, int64_t r, int64_t from, int64_t n) const {
    return row.reduce(
        n, nothing<Op, A>(), Op(),
        [](int64_t, S e) { return Itself::get<A>(e); }, x + r * stride + from);
  }

  const S* x;
  int64_t stride;
  S* out;  // [rows, n]
};

// The elements are weight * exp(x). A weight is 1 if `weight` is null. The
// result is a logarithm if `scale` is null.
template <class S>
struct Exponentials {
  using Stored = S;
  DT_HD LogSum get(int64_t r, int64_t i) const {
    return {static_cast<double>(widened(x[r * x_stride + i])),
            weight ? static_cast<double>(widened(weight[r * weight_stride + i]))
                   : 1.0};
  }
  DT_HD compute_t<S> result(int64_t r, int64_t i, const LogSum& a) const {
    if (!scale) return static_cast<compute_t<S>>(a.most + fn::log(a.sum));
    const auto by = static_cast<double>(widened(scale[r * scale_stride + i]));
    const double none = lowest<double>();
    return static_cast<compute_t<S>>(
        a.most == none || by == none ? 0 : a.sum * fn::exp(a.most + by));
  }
  template <class R, class F>
  DT_HD void each(R& row, int64_t r, int64_t from, int64_t n, F f) const {
    row.each(n, [&](int64_t i) { f(i, get(r, from + i)); });
  }
  template <class Op, class R>
  DT_HD LogSum reduce(R& row, int64_t r, int64_t from, int64_t n) const {
    return row.reduce(n, nothing<Op, LogSum>(), Op(),
                      [&](int64_t i) { return get(r, from + i); });
  }

  const S *x, *weight, *scale;
  int64_t x_stride, weight_stride, scale_stride;
  S* out;  // [rows, n]
};

#ifdef __CUDACC__
// A segment of a row is in fast memory as a whole: its elements, the sums of
// each 8 elements, and the sums of each 64.
constexpr int64_t kSegment = 1024, kFew = 8;
constexpr int64_t kFast = kSegment + kSegment / kFew + kSegment / kFew / kFew;

DT_HD inline int64_t segments_of(const Scan& scan) {
  return scan.n <= kSegment ? 1 : (scan.n + kSegment - 1) / kSegment;
}
DT_HD inline int64_t length_of(const Scan& scan, int64_t segment) {
  const int64_t left = scan.n - segment * kSegment;
  return left < kSegment ? left : kSegment;
}

// Replaces the kFew elements of group `group` of v [n] by their running sums.
// Returns the last of these.
template <class Op, class A>
DT_HD A run_few(int64_t group, int64_t n, A* v) {
  A sum = nothing<Op, A>();
  const int64_t end = (group + 1) * kFew < n ? (group + 1) * kFew : n;
  for (int64_t i = group * kFew; i < end; ++i) v[i] = sum = Op()(sum, v[i]);
  return sum;
}

// Computes the running sums of each segment. `before` [rows, segments] has the
// sums up to the end of each segment, including the row's carry. A segment
// starts from the sum of the one before it; the first one, from the row's
// carry.
template <class Op, class E, class A>
void scan_segments(Stream s, const Scan& scan, const E& elements,
                   const A* carry, const A* before, A* total) {
  const int64_t segments = segments_of(scan);
  rows(
      s, scan.count * segments, kSegment,
      DT_BODY(Row & row, int64_t r) {
        const int64_t of_row = r / segments, segment = r % segments,
                      from = segment * kSegment, n = length_of(scan, segment),
                      few = (n + kFew - 1) / kFew,
                      more = (few + kFew - 1) / kFew,
                      previous = segment + (scan.reverse ? 1 : -1);
        const A start = previous >= 0 && previous < segments
                            ? before[of_row * segments + previous]
                        : carry ? carry[of_row]
                                : nothing<Op, A>();
        A* const v = row.fast<A>();
        A* const sums = v + kSegment;
        A* const starts = sums + kSegment / kFew;
        const auto turned = [&](int64_t i) {
          return scan.reverse ? n - 1 - i : i;
        };
        elements.each(row, of_row, from, n,
                      [&](int64_t i, const A& e) { v[turned(i)] = e; });
        row.each(few, [&](int64_t i) { sums[i] = run_few<Op>(i, n, v); });
        row.each(more,
                 [&](int64_t i) { starts[i] = run_few<Op>(i, few, sums); });
        row.each(1, [&](int64_t) {
          A sum = start;
          for (int64_t i = 0; i < more; ++i) {
            const A next = Op()(sum, starts[i]);
            starts[i] = sum;
            sum = next;
          }
          if (total) total[of_row] = sum;
        });
        if (elements.out)
          row.map_at(n, elements.out + of_row * scan.n + from, [&](int64_t i) {
            const int64_t at = turned(i), group = at / kFew;
            A sum = starts[group / kFew];
            if (group % kFew > 0) sum = Op()(sum, sums[group - 1]);
            return elements.result(of_row, from + i, Op()(sum, v[at]));
          });
      },
      kFast * static_cast<int64_t>(sizeof(A)));
}

template <class Op, class E, class A>
void scan_all(Stream s, const Scan& scan, const E& elements, const A* carry,
              A* total) {
  const int64_t segments = segments_of(scan);
  if (segments == 1)
    return scan_segments<Op, E, A>(s, scan, elements, carry, nullptr, total);
  const int64_t bytes = scan.count * segments * static_cast<int64_t>(sizeof(A));
  Scratch sums(s, bytes), running(s, bytes);
  A* const to = sums.as<A>();
  rows(
      s, scan.count * segments, kSegment, DT_BODY(Row & row, int64_t r) {
        const int64_t of_row = r / segments, segment = r % segments;
        const A sum = elements.template reduce<Op>(
            row, of_row, segment * kSegment, length_of(scan, segment));
        row.each(1, [&](int64_t) { to[r] = sum; });
      });
  scan_all<Op, Numbers<A, A>, A>(s, {scan.count, segments, scan.reverse},
                                 {to, segments, running.as<A>()}, carry, total);
  if (elements.out)
    scan_segments<Op, E, A>(s, scan, elements, carry, running.as<A>(), nullptr);
}

#else
template <class Op, class E, class A>
void scan_all(Stream s, const Scan& scan, const E& elements, const A* carry,
              A* total) {
  rows(s, scan.count, scan.n, [=](Row&, int64_t r) {
    const int64_t n = scan.n;
    auto* const to = row_at(elements.out, r, n);
    A sum = carry ? carry[r] : nothing<Op, A>();
    const int64_t step = scan.reverse ? -1 : 1;
    int64_t at = scan.reverse ? n - 1 : 0;
    for (int64_t i = 0; i < n; ++i, at += step) {
      sum = Op()(sum, elements.get(r, at));
      if (to) to[at] = rounded<typename E::Stored>(elements.result(r, at, sum));
    }
    if (total) total[r] = sum;
  });
}
#endif

template <class Op>
void scan_kind(Stream s, const ScanRows& a) {
  visit_numbers(a.x.type, "scan_rows", [&]<class S>() {
    using A = scan_t<Op, S>;
    scan_all<Op, Numbers<S, A>, A>(
        s, {a.x.rows, a.x.n, a.reverse},
        {static_cast<const S*>(a.x.data), a.x.stride, static_cast<S*>(a.out)},
        static_cast<const A*>(a.carry), static_cast<A*>(a.total));
  });
}

}  // namespace

DT_KERNEL(ScanRows)
void run(Stream s, const ScanRows& a) {
  switch (a.kind) {
    case ReduceKind::kSum:
      return scan_kind<Sum>(s, a);
    case ReduceKind::kMax:
      return scan_kind<Max>(s, a);
    case ReduceKind::kMin:
      return scan_kind<Min>(s, a);
    case ReduceKind::kProd:
      return scan_kind<Prod>(s, a);
  }
}

DT_KERNEL(ScanExp)
void run(Stream s, const ScanExp& a) {
  visit_float(a.x.type, "scan_exp", [&]<class S>() {
    scan_all<AddLogSums, Exponentials<S>, LogSum>(
        s, {a.x.rows, a.x.n, a.reverse},
        {static_cast<const S*>(a.x.data), static_cast<const S*>(a.weight.data),
         static_cast<const S*>(a.scale.data), a.x.stride, a.weight.stride,
         a.scale.stride, static_cast<S*>(a.out)},
        static_cast<const LogSum*>(a.carry), static_cast<LogSum*>(a.total));
  });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
