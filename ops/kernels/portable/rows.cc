// Softmax and statistics of rows.
#include "dtensor/ops/functions/math.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "dtensor/ops/kernels/portable/row.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::compute_t;
using portable::lowest;
using portable::rounded;
using portable::Row;
using portable::rows;
using portable::Sum;
using portable::widened;

// The largest value so far, and the sum of exp(x - max).
template <class C>
struct MaxSum {
  C max, sum;
};
// Merges two with one exponential, because this runs for every element of a
// row. A NaN enters the sum and stays there.
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

// max and sum of a row, in one pass over it.
template <class S, class C = compute_t<S>>
DT_HD MaxSum<C> max_sum(Row& row, int64_t n, const S* x) {
  MaxSum<C> all = row.reduce(
      n, MaxSum<C>{lowest<C>(), C(0)}, Merge<C>(),
      [](int64_t, S v) {
        return MaxSum<C>{widened(v), C(1)};
      },
      x);
  // inf - inf gives NaN, as a sum that is taken after the maximum does.
  if (all.max != lowest<C>()) all.sum += all.max - all.max;
  return all;
}
template <class S>
DT_HD compute_t<S> sum_of(Row& row, int64_t n, const S* x) {
  return row.reduce(
      n, compute_t<S>(0), Sum(), [](int64_t, S v) { return widened(v); }, x);
}
template <class S>
DT_HD compute_t<S> dot(Row& row, int64_t n, const S* a, const S* b) {
  return row.reduce(
      n, compute_t<S>(0), Sum(),
      [](int64_t, S u, S v) { return widened(u) * widened(v); }, a, b);
}

template <class S, class C = compute_t<S>>
void softmax(Stream s, const Softmax& a) {
  rows(
      s, a.x.rows, a.x.n, DT_BODY(Row & row, int64_t r) {
        const int64_t n = a.x.n;
        const S* x = row_at<S>(a.x, r);
        const MaxSum<C> all = a.max ? MaxSum<C>{static_cast<const C*>(a.max)[r],
                                                static_cast<const C*>(a.sum)[r]}
                                    : max_sum(row, n, x);
        const C scale = a.log ? fn::log(all.sum) : C(1) / all.sum;
        row.map(
            n, row_at(static_cast<S*>(a.y), r, n),
            [&](int64_t, S v) {
              const C shifted = widened(v) - all.max;
              return rounded<S>(a.log ? shifted - scale
                                      : fn::exp(shifted) * scale);
            },
            x);
      });
}

template <class S, class C = compute_t<S>>
void backward(Stream s, const SoftmaxBackward& a) {
  rows(
      s, a.dy.rows, a.dy.n, DT_BODY(Row & row, int64_t r) {
        const int64_t n = a.dy.n;
        const S* y = row_at(static_cast<const S*>(a.y), r, n);
        const S* dy = row_at<S>(a.dy, r);
        const C sum = a.sum   ? static_cast<const C*>(a.sum)[r]
                      : a.log ? sum_of(row, n, dy)
                              : dot(row, n, y, dy);
        row.map(
            n, row_at(static_cast<S*>(a.dx), r, n),
            [&](int64_t, S v, S d) {
              const C w = widened(v), g = widened(d);
              return rounded<S>(a.log ? g - fn::exp(w) * sum : w * (g - sum));
            },
            y, dy);
      });
}

template <class S, class C = compute_t<S>>
void max_sums(Stream s, const RowMaxSum& a) {
  rows(
      s, a.x.rows, a.x.n, DT_BODY(Row & row, int64_t r) {
        const MaxSum<C> all = max_sum(row, a.x.n, row_at<S>(a.x, r));
        put(row, static_cast<C*>(a.max) + r, all.max);
        put(row, static_cast<C*>(a.sum) + r, all.sum);
      });
}

template <class S, class C = compute_t<S>>
void sums(Stream s, const RowSum& a) {
  rows(
      s, a.x.rows, a.x.n, DT_BODY(Row & row, int64_t r) {
        put(row, static_cast<C*>(a.sum) + r,
            sum_of(row, a.x.n, row_at<S>(a.x, r)));
      });
}

template <class S, class C = compute_t<S>>
void dots(Stream s, const RowDot& a) {
  rows(
      s, a.y.rows, a.y.n, DT_BODY(Row & row, int64_t r) {
        put(row, static_cast<C*>(a.dot) + r,
            dot(row, a.y.n, row_at<S>(a.y, r), row_at<S>(a.dy, r)));
      });
}

}  // namespace

void PortableKernels::run(Stream s, const Softmax& a) const {
  visit_float(a.x.type, "softmax", [&]<class S>() { softmax<S>(s, a); });
}

void PortableKernels::run(Stream s, const SoftmaxBackward& a) const {
  visit_float(a.dy.type, "softmax backward",
              [&]<class S>() { backward<S>(s, a); });
}

void PortableKernels::run(Stream s, const RowMaxSum& a) const {
  visit_float(a.x.type, "row_max_sum", [&]<class S>() { max_sums<S>(s, a); });
}

void PortableKernels::run(Stream s, const RowSum& a) const {
  visit_float(a.x.type, "row_sum", [&]<class S>() { sums<S>(s, a); });
}

void PortableKernels::run(Stream s, const RowDot& a) const {
  visit_float(a.y.type, "row_dot", [&]<class S>() { dots<S>(s, a); });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
