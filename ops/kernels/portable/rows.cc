// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/rows.h"

#include "dtensor/ops/functions/math.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "dtensor/ops/kernels/portable/row.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::compute_t;
using portable::lowest;
using portable::Row;
using portable::widened;

// A value of a Row or Column: a number, but a register for a Column on the
// host.
template <class S, class R>
using value_t = decltype(std::declval<R&>().get(std::declval<const S*>()));

// The largest value so far, and the sum of exp(x - max).
template <class V>
struct MaxSum {
  V max, sum;
};
// Merges two MaxSums with one exponential. A NaN enters the sum and stays.
template <class C>
struct Merge {
  DT_HD MaxSum<C> operator()(MaxSum<C> a, MaxSum<C> b) const {
    const C gap = a.max - b.max;
    const bool first = gap > C(0);
    // Avoids inf - inf for equal infinities.
    const C factor = a.max == b.max ? C(1) : fn::exp(first ? -gap : gap);
    return {first ? a.max : b.max,
            first ? a.sum + b.sum * factor : b.sum + a.sum * factor};
  }
};

template <class S, class R, class V = value_t<S, R>>
DT_HD MaxSum<V> max_sum(R& row, int64_t n, const S* x) {
  using C = compute_t<S>;
  if constexpr (portable::kManyPasses || !std::is_same_v<R, Row>) {
    using fn::select;
    const V max = row.max(n, x),
            sum(row.sum(
                n, [&](auto v) { return exp_softmax(v - max); }, x));
    return {max, select(max == V(lowest<C>()), V(n), sum)};
  } else {
    MaxSum<C> all = row.reduce_packs(
        n, MaxSum<C>{lowest<C>(), C(0)}, Merge<C>(),
        [](const MaxSum<C>& a, const auto& pack) {
          C max = a.max;
          for (const S& v : pack.v) max = widened(v) > max ? widened(v) : max;
          // -inf less -inf would be NaN.
          const C less = max == lowest<C>() ? C(0) : max;
          C sum = a.sum * exp_softmax(a.max - less);
          for (const S& v : pack.v) sum += exp_softmax(widened(v) - less);
          return MaxSum<C>{max, sum};
        },
        x);
    if (all.max == lowest<C>()) all.sum += static_cast<C>(n);
    return all;
  }
}
template <class S, class R, class V = value_t<S, R>>
DT_HD V sum_of(R& row, int64_t n, const S* x) {
  return V(row.sum(
      n, [](auto v) { return v; }, x));
}
template <class S, class R, class V = value_t<S, R>>
DT_HD V dot(R& row, int64_t n, const S* a, const S* b) {
  return V(row.sum(
      n, [](auto u, auto v) { return u * v; }, a, b));
}

// y = exp(x - max) / sum.
template <class S, class V>
DT_HD void divide(auto& row, int64_t n, const S* x, MaxSum<V> all, S* y) {
  const V max = all.max, scale = V(1) / all.sum;
  row.map(
      n, y, [&](auto v) { return exp_softmax(v - max) * scale; }, x);
}

// whole() computes the softmax of a row. For a Row on the host, it keeps
// exponentials for a second pass: in y, or in fast memory of kept_bytes() if y
// has a half type.
template <class S, class C = compute_t<S>>
constexpr int64_t kept_bytes(int64_t n) {
  return portable::kManyPasses && !std::is_same_v<S, C>
             ? n * static_cast<int64_t>(sizeof(C))
             : 0;
}
template <class S, class R, class C = compute_t<S>>
DT_HD void whole(R& row, int64_t n, const S* x, S* y) {
  if constexpr (portable::kManyPasses && std::is_same_v<R, Row>) {
    C* e;
    if constexpr (std::is_same_v<S, C>)
      e = y;
    else
      e = row.template fast<C>();
    const C max = row.max(n, x);
    const C scale =
        C(1) / static_cast<C>(row.map_sum(
                   n, e, [&](auto v) { return exp_softmax(v - max); }, x));
    row.map(
        n, y, [&](auto v) { return v * scale; }, e);
  } else {
    divide(row, n, x, max_sum(row, n, x), y);
  }
}

template <class S, class C = compute_t<S>>
void softmax(Stream s, const Softmax& a) {
  lines<S>(
      s, a.x,
      DT_BODY(auto& row, int64_t r) {
        using V = value_t<S, decltype(row)>;
        using fn::log;
        row.by_leaves(a.by_leaves);
        const int64_t n = a.x.n, first = r * a.x.inner;
        const S* x = row_at<S>(a.x, r);
        S* y = row_at(static_cast<S*>(a.y), first, n);
        if (!a.max && !a.log) return whole(row, n, x, y);
        const MaxSum<V> all =
            a.max ? MaxSum<V>{row.get(static_cast<const C*>(a.max) + first),
                              row.get(static_cast<const C*>(a.sum) + first)}
                  : max_sum(row, n, x);
        if (!a.log) return divide(row, n, x, all, y);
        const V max = all.max, log_sum = log(all.sum);
        row.map(
            n, y, [&](auto v) { return v - max - log_sum; }, x);
      },
      kept_bytes<S>(a.x.n));
}

template <class S, class C = compute_t<S>>
void backward(Stream s, const SoftmaxBackward& a) {
  lines<S>(
      s, a.dy, DT_BODY(auto& row, int64_t r) {
        using V = value_t<S, decltype(row)>;
        const int64_t n = a.dy.n, first = r * a.dy.inner;
        row.by_leaves(a.by_leaves);
        const S* y = row_at(static_cast<const S*>(a.y), first, n);
        const S* dy = row_at<S>(a.dy, r);
        S* dx = row_at(static_cast<S*>(a.dx), first, n);
        const V sum = a.sum   ? row.get(static_cast<const C*>(a.sum) + first)
                      : a.log ? sum_of(row, n, dy)
                              : dot(row, n, y, dy);
        if (a.log)
          row.map(
              n, dx, [&](auto v, auto d) { return d - exp_softmax(v) * sum; },
              y, dy);
        else
          row.map(
              n, dx, [&](auto v, auto d) { return v * (d - sum); }, y, dy);
      });
}

template <class S, class C = compute_t<S>>
void max_sums(Stream s, const RowMaxSum& a) {
  lines<S>(
      s, a.x, DT_BODY(auto& row, int64_t r) {
        const auto all = max_sum(row, a.x.n, row_at<S>(a.x, r));
        row.put(static_cast<C*>(a.max) + r * a.x.inner, all.max);
        row.put(static_cast<C*>(a.sum) + r * a.x.inner, all.sum);
      });
}

template <class S, class C = compute_t<S>>
void sums(Stream s, const RowSum& a) {
  lines<S>(
      s, a.x, DT_BODY(auto& row, int64_t r) {
        row.put(static_cast<C*>(a.sum) + r * a.x.inner,
                sum_of(row, a.x.n, row_at<S>(a.x, r)));
      });
}

template <class S, class C = compute_t<S>>
void dots(Stream s, const RowDot& a) {
  lines<S>(
      s, a.y, DT_BODY(auto& row, int64_t r) {
        row.put(static_cast<C*>(a.dot) + r * a.y.inner,
                dot(row, a.y.n, row_at<S>(a.y, r), row_at<S>(a.dy, r)));
      });
}

}  // namespace

DT_KERNEL(Softmax)
void run(Stream s, const Softmax& a) {
  visit_float(a.x.type, "softmax", [&]<class S>() { softmax<S>(s, a); });
}

DT_KERNEL(SoftmaxBackward)
void run(Stream s, const SoftmaxBackward& a) {
  visit_float(a.dy.type, "softmax backward",
              [&]<class S>() { backward<S>(s, a); });
}

DT_KERNEL(RowMaxSum)
void run(Stream s, const RowMaxSum& a) {
  visit_float(a.x.type, "row_max_sum", [&]<class S>() { max_sums<S>(s, a); });
}

DT_KERNEL(RowSum)
void run(Stream s, const RowSum& a) {
  visit_float(a.x.type, "row_sum", [&]<class S>() { sums<S>(s, a); });
}

DT_KERNEL(RowDot)
void run(Stream s, const RowDot& a) {
  visit_float(a.y.type, "row_dot", [&]<class S>() { dots<S>(s, a); });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
