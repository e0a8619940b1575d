// Reductions, sums of squares and running sums.
#include "dtensor/ops/kernels/reduce.h"

#include <algorithm>
#include <cstdlib>
#include <type_traits>

#include "dtensor/device/portable/walk.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::each;
using portable::Max;
using portable::Min;
using portable::Row;
using portable::rows;
using portable::Scratch;
using portable::Sum;
using portable::Walk;

// --- The operations ---------------------------------------------------------
struct Prod {
  template <class A>
  DT_HD A operator()(const A& a, const A& b) const {
    return a * b;
  }
};

// The type in which elements of type S are reduced. Sums and products take
// floats in f64, and integers as unsigned, which wrap around. A bool is a byte
// 0 or 1.
template <class Op, class S>
constexpr auto accumulator() {
  constexpr bool kArithmetic =
      std::is_same_v<Op, Sum> || std::is_same_v<Op, Prod>;
  if constexpr (std::is_same_v<S, uint8_t>)
    return uint32_t{};
  else if constexpr (!kArithmetic)
    return portable::compute_t<S>{};
  else if constexpr (portable::is_floating<S>)
    return double{};
  else
    return std::make_unsigned_t<S>{};
}
template <class Op, class S>
using acc_t = decltype(accumulator<Op, S>());

template <class Op, class A>
DT_HD constexpr A identity() {
  if constexpr (std::is_same_v<Op, Max>)
    return portable::lowest<A>();
  else if constexpr (std::is_same_v<Op, Min>)
    return portable::highest<A>();
  else
    return A(std::is_same_v<Op, Prod>);
}

// Converts an element for the reduction, and a result for storage.
struct Itself {
  template <class A, class S>
  DT_HD static A get(S x) {
    if constexpr (std::is_same_v<S, uint8_t>)
      return A(x != 0);
    else
      return static_cast<A>(portable::widened(x));
  }
};
struct Square {
  template <class A, class S>
  DT_HD static A get(S x) {
    return Itself::get<A>(x) * Itself::get<A>(x);
  }
};
template <class S, class A>
DT_HD S result(A a) {
  return portable::rounded<S>(static_cast<portable::compute_t<S>>(a));
}

// --- The loops --------------------------------------------------------------
struct Plan {
  Walk<2> kept;     // the results, and their first elements
  Walk<1> reduced;  // the elements of each, in memory order
};

Plan plan_of(const Shape& kept, const Shape& kept_strides, const Shape& reduced,
             const Shape& reduced_strides) {
  const Shape out_strides = contiguous_strides(kept);
  return {{kept, {out_strides, kept_strides}}, {reduced, {reduced_strides}}};
}

// Computes each result by one thread, or by `parts` threads that take elements
// in turn. They are stored in `out` in the order [kept but its last loop, part,
// last loop], in which neighbouring threads read neighbouring elements.
template <class Op, class Get, class S, class Out>
void by_threads(Stream s, const Plan& plan, const S* x, int64_t parts,
                Out* out) {
  using A = acc_t<Op, S>;
  const int64_t results = plan.kept.count(), last = plan.kept.inner();
  each(
      s, results * parts, DT_BODY(int64_t i) {
        const int64_t outer = i / last, part = outer % parts,
                      r = outer / parts * last + i % last;
        int64_t start[2], at[1];
        plan.kept.at(r, start);
        const int64_t n = plan.reduced.count();
        // Four independent accumulators hide latency.
        A four[4];
        for (A& a : four) a = identity<Op, A>();
        int64_t j = part;
        for (; j + 3 * parts < n; j += 4 * parts) {
          S value[4];
          for (int k = 0; k < 4; ++k) {
            plan.reduced.at(j + k * parts, at);
            value[k] = x[start[1] + at[0]];
          }
          for (int k = 0; k < 4; ++k)
            four[k] = Op()(four[k], Get::template get<A>(value[k]));
        }
        for (; j < n; j += parts) {
          plan.reduced.at(j, at);
          four[0] = Op()(four[0], Get::template get<A>(x[start[1] + at[0]]));
        }
        out[i] =
            result<Out>(Op()(Op()(four[0], four[1]), Op()(four[2], four[3])));
      });
}

// Splits the elements of a result into runs of `run`, and these into pieces of
// `piece`, one row of lanes for each: [results, runs, pieces]. `contiguous`
// says whether runs are.
struct Pieces {
  int64_t run, piece;
  bool contiguous;
  DT_HD int64_t per_run() const { return (run + piece - 1) / piece; }
};

template <class Op, class Get, class S, class Out>
void by_rows(Stream s, const Plan& plan, const Pieces& pieces, const S* x,
             Out* out) {
  using A = acc_t<Op, S>;
  const int64_t per_run = pieces.per_run(),
                parts = plan.reduced.count() / pieces.run * per_run;
  rows(
      s, plan.kept.count() * parts, pieces.piece,
      DT_BODY(Row & row, int64_t i) {
        int64_t start[2], at[1];
        plan.kept.at(i / parts, start);
        const int64_t part = i % parts, from = part % per_run * pieces.piece,
                      first = part / per_run * pieces.run + from,
                      left = pieces.run - from,
                      n = left < pieces.piece ? left : pieces.piece;
        A all;
        if (pieces.contiguous) {
          plan.reduced.at(first, at);
          all = row.reduce(
              n, identity<Op, A>(), Op(),
              [](int64_t, S v) { return Get::template get<A>(v); },
              x + start[1] + at[0]);
        } else {
          all = row.reduce(n, identity<Op, A>(), Op(), [&](int64_t j) {
            int64_t here[1];
            plan.reduced.at(first + j, here);
            return Get::template get<A>(x[start[1] + here[0]]);
          });
        }
        row.each(1, [&](int64_t) { out[i] = result<Out>(all); });
      });
}

// The numbers of threads, and of rows, that keep a large GPU busy.
constexpr int64_t kThreads = 1 << 18, kRows = 1 << 10;

template <class Op, class Get = Itself, class S, class Out>
void reduce_all(Stream s, const Plan& plan, const S* x, Out* out) {
  using A = acc_t<Op, S>;
  const int64_t results = plan.kept.count(), n = plan.reduced.count();
  if (results == 0) return;
  const auto bytes_of = [&](int64_t parts) {
    return results * parts * static_cast<int64_t>(sizeof(A));
  };
  const int64_t result_step = std::abs(plan.kept.inner_step(1)),
                step = std::abs(plan.reduced.inner_step(0));
  // If neighbours in memory belong to different results, reduce columns.
  const bool columns = result_step != 0 && result_step < step;
  if (columns || n <= 16) {
    const int64_t parts =
        n < 128 ? 1 : std::clamp<int64_t>(kThreads / results, 1, n / 32);
    if (parts == 1) return by_threads<Op, Get>(s, plan, x, 1, out);
    Scratch of_parts(s, bytes_of(parts));
    by_threads<Op, Get>(s, plan, x, parts, of_parts.as<A>());
    const int64_t last = plan.kept.inner();
    return reduce_all<Op>(
        s, plan_of({results / last, last}, {parts * last, 1}, {parts}, {last}),
        of_parts.as<A>(), out);
  }
  const int64_t inner = plan.reduced.inner();
  const bool runs =
      plan.reduced.inner_step(0) == 1 && (inner == n || inner >= 128);
  Pieces p = {runs ? inner : n, 0, runs};
  const int64_t count = results * (n / p.run),
                per_run = std::clamp<int64_t>(
                    kRows / count, 1, std::max<int64_t>(p.run / 4096, 1));
  // A multiple of the elements that are loaded at once.
  p.piece = ((p.run + per_run - 1) / per_run + 63) / 64 * 64;
  const int64_t parts = n / p.run * p.per_run();
  if (parts == 1) return by_rows<Op, Get>(s, plan, p, x, out);
  Scratch of_parts(s, bytes_of(parts));
  by_rows<Op, Get>(s, plan, p, x, of_parts.as<A>());
  reduce_all<Op>(s, plan_of({results}, {parts}, {parts}, {1}), of_parts.as<A>(),
                 out);
}

template <class S>
void reduce_kind(Stream s, ReduceKind kind, const Plan& plan, const void* in,
                 void* out) {
  const S* x = static_cast<const S*>(in);
  S* y = static_cast<S*>(out);
  switch (kind) {
    case ReduceKind::kSum:
      return reduce_all<Sum>(s, plan, x, y);
    case ReduceKind::kMax:
      return reduce_all<Max>(s, plan, x, y);
    case ReduceKind::kMin:
      return reduce_all<Min>(s, plan, x, y);
    case ReduceKind::kProd:
      return reduce_all<Prod>(s, plan, x, y);
  }
}

template <class S>
void sum_of_squares(Stream s, int64_t n, const S* x, double* sum) {
  Scratch total(s, sizeof(double));
  double* const more = total.as<double>();
  reduce_all<Sum, Square>(s, plan_of({}, {}, {n}, {1}), x, more);
  each(
      s, 1, DT_BODY(int64_t) { *sum += *more; });
}

// --- Running sums -----------------------------------------------------------
// A segment of a row is in fast memory as a whole: its elements, the sums of 8
// elements each, and those of 64.
constexpr int64_t kSegment = 1024, kFew = 8;
constexpr int64_t kFast = kSegment + kSegment / kFew + kSegment / kFew / kFew;

// The type of the sums. Sums and products of integers are unsigned, and wrap
// around.
template <class Op, class S>
using scan_t = std::conditional_t<
    portable::is_floating<S>, double,
    std::conditional_t<std::is_same_v<Op, Max> || std::is_same_v<Op, Min>,
                       int64_t, uint64_t>>;

struct Scan {
  int64_t count, n, stride;  // number and length of rows
  bool reverse;
  DT_HD int64_t segments() const {
    return n <= kSegment ? 1 : (n + kSegment - 1) / kSegment;
  }
  DT_HD int64_t length(int64_t segment) const {
    const int64_t left = n - segment * kSegment;
    return left < kSegment ? left : kSegment;
  }
};

// Replaces group `group` of the n elements v, kFew of them, by running sums.
// Returns the last one.
template <class Op, class A>
DT_HD A run_few(int64_t group, int64_t n, A* v) {
  A sum = identity<Op, A>();
  const int64_t end = (group + 1) * kFew < n ? (group + 1) * kFew : n;
  for (int64_t i = group * kFew; i < end; ++i) v[i] = sum = Op()(sum, v[i]);
  return sum;
}

// Running sums of each segment. `before` [rows, segments] has the sums up to
// the end of each segment, including the row's carry. A segment starts from
// that of the segment before it, and the first one from the row's carry.
template <class Op, class S, class A>
void scan_segments(Stream s, const Scan& scan, const S* x, const A* carry,
                   const A* before, S* out, A* total) {
  const int64_t segments = scan.segments();
  rows(
      s, scan.count * segments, kSegment,
      DT_BODY(Row & row, int64_t r) {
        const int64_t of_row = r / segments, segment = r % segments,
                      from = segment * kSegment, n = scan.length(segment),
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
  const int64_t segments = scan.segments();
  if (segments == 1)
    return scan_segments<Op, S, A>(s, scan, x, carry, nullptr, out, total);
  const int64_t bytes = scan.count * segments * static_cast<int64_t>(sizeof(A));
  Scratch sums(s, bytes), running(s, bytes);
  A* const to = sums.as<A>();
  rows(
      s, scan.count * segments, kSegment, DT_BODY(Row & row, int64_t r) {
        const int64_t of_row = r / segments, segment = r % segments;
        const A sum = row.reduce(
            scan.length(segment), identity<Op, A>(), Op(),
            [](int64_t, S e) { return Itself::get<A>(e); },
            x + of_row * scan.stride + segment * kSegment);
        row.each(1, [&](int64_t) { to[r] = sum; });
      });
  scan_all<Op, A, A>(s, {scan.count, segments, segments, scan.reverse}, to,
                     carry, running.as<A>(), total);
  if (out)
    scan_segments<Op, S, A>(s, scan, x, carry, running.as<A>(), out, nullptr);
}

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

void PortableKernels::run(Stream s, const Reduce& a) const {
  if (a.type == DType::kBool && a.kind == ReduceKind::kSum)
    no_kernel("reduce", a.type);
  Shape kept, kept_strides, reduced, reduced_strides;
  for (int i = 0; i < a.shape.size(); ++i) {
    const bool reduces = a.dims >> i & 1;
    (reduces ? reduced : kept).push_back(a.shape[i]);
    (reduces ? reduced_strides : kept_strides).push_back(a.strides[i]);
  }
  const Plan plan = plan_of(kept, kept_strides, reduced, reduced_strides);
  visit(a.type, [&]<class S>() {
    // For bools, "all" is a product, and 1 if empty.
    if constexpr (std::is_same_v<S, bool>)
      reduce_kind<uint8_t>(
          s, a.kind == ReduceKind::kMax ? a.kind : ReduceKind::kProd, plan,
          a.in, a.out);
    else
      reduce_kind<S>(s, a.kind, plan, a.in, a.out);
  });
}

void PortableKernels::run(Stream s, const SumSquares& a) const {
  visit_float(a.type, "sum_squares", [&]<class S>() {
    sum_of_squares(s, a.n, static_cast<const S*>(a.x),
                   static_cast<double*>(a.sum));
  });
}

void PortableKernels::run(Stream s, const ScanRows& a) const {
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
