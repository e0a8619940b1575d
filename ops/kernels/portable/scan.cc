// SPDX-License-Identifier: Apache-2.0
// Running sums, products, maxima and minima of rows.
#include <type_traits>

#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "dtensor/ops/kernels/portable/reduction.h"
#include "dtensor/ops/kernels/reduce.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::Row;
using portable::rows;
using portable::Scratch;

// The type of the running values. Sums and products of integers are unsigned,
// and wrap around.
template <class Op, class S>
using scan_t = std::conditional_t<
    portable::is_floating<S>, double,
    std::conditional_t<std::is_same_v<Op, Max> || std::is_same_v<Op, Min>,
                       int64_t, uint64_t>>;

struct Scan {
  int64_t count, n, stride;  // number and length of rows
  bool reverse;
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
  A sum = identity<Op, A>();
  const int64_t end = (group + 1) * kFew < n ? (group + 1) * kFew : n;
  for (int64_t i = group * kFew; i < end; ++i) v[i] = sum = Op()(sum, v[i]);
  return sum;
}

// Computes the running sums of each segment. `before` [rows, segments] has the
// sums up to the end of each segment, including the row's carry. A segment
// starts from the sum of the one before it; the first one, from the row's
// carry.
template <class Op, class S, class A>
void scan_segments(Stream s, const Scan& scan, const S* x, const A* carry,
                   const A* before, S* out, A* total) {
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
                                : identity<Op, A>();
        A* const v = row.fast<A>();
        A* const sums = v + kSegment;
        A* const starts = sums + kSegment / kFew;
        const auto turned = [&](int64_t i) {
          return scan.reverse ? n - 1 - i : i;
        };
        row.each(
            n, [&](int64_t i, S e) { v[turned(i)] = Itself::get<A>(e); },
            x + of_row * scan.stride + from);
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
        if (out)
          row.map_at(n, out + of_row * scan.n + from, [&](int64_t i) {
            const int64_t at = turned(i), group = at / kFew;
            A sum = starts[group / kFew];
            if (group % kFew > 0) sum = Op()(sum, sums[group - 1]);
            return static_cast<portable::compute_t<S>>(Op()(sum, v[at]));
          });
      },
      kFast * static_cast<int64_t>(sizeof(A)));
}

template <class Op, class S, class A>
void scan_all(Stream s, const Scan& scan, const S* x, const A* carry, S* out,
              A* total) {
  const int64_t segments = segments_of(scan);
  if (segments == 1)
    return scan_segments<Op, S, A>(s, scan, x, carry, nullptr, out, total);
  const int64_t bytes = scan.count * segments * static_cast<int64_t>(sizeof(A));
  Scratch sums(s, bytes), running(s, bytes);
  A* const to = sums.as<A>();
  rows(
      s, scan.count * segments, kSegment, DT_BODY(Row & row, int64_t r) {
        const int64_t of_row = r / segments, segment = r % segments;
        const A sum = row.reduce(
            length_of(scan, segment), identity<Op, A>(), Op(),
            [](int64_t, S e) { return Itself::get<A>(e); },
            x + of_row * scan.stride + segment * kSegment);
        row.each(1, [&](int64_t) { to[r] = sum; });
      });
  scan_all<Op, A, A>(s, {scan.count, segments, segments, scan.reverse}, to,
                     carry, running.as<A>(), total);
  if (out)
    scan_segments<Op, S, A>(s, scan, x, carry, running.as<A>(), out, nullptr);
}

#else
template <class Op, class S, class A>
void scan_all(Stream s, const Scan& scan, const S* x, const A* carry, S* out,
              A* total) {
  rows(s, scan.count, scan.n, [=](Row&, int64_t r) {
    const int64_t n = scan.n;
    const S* from = row_at(x, r, scan.stride);
    S* const to = row_at(out, r, n);
    A sum = carry ? carry[r] : identity<Op, A>();
    const int64_t step = scan.reverse ? -1 : 1;
    int64_t at = scan.reverse ? n - 1 : 0;
    for (int64_t i = 0; i < n; ++i, at += step) {
      sum = Op()(sum, Itself::get<A>(from[at]));
      if (to) to[at] = result<S>(sum);
    }
    if (total) total[r] = sum;
  });
}
#endif

template <class Op>
void scan_kind(Stream s, const ScanRows& a) {
  visit_numbers(a.x.type, "scan_rows", [&]<class S>() {
    using A = scan_t<Op, S>;
    scan_all<Op, S, A>(s, {a.x.rows, a.x.n, a.x.stride, a.reverse},
                       static_cast<const S*>(a.x.data),
                       static_cast<const A*>(a.carry), static_cast<S*>(a.out),
                       static_cast<A*>(a.total));
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

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
