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

// `max` and `sum` are those of the whole row, or null to compute them.
template <class S, class C = compute_t<S>>
void softmax(Stream s, int64_t count, int64_t n, const void* x_, int64_t stride,
             const void* max_, const void* sum_, void* y_, bool log) {
  const auto* x = static_cast<const S*>(x_);
  const auto* max = static_cast<const C*>(max_);
  const auto* sum = static_cast<const C*>(sum_);
  auto* y = static_cast<S*>(y_);
  rows(
      s, count, n, DT_BODY(Row & row, int64_t r) {
        const S* in = row_at(x, r, stride);
        const MaxSum<C> all =
            max ? MaxSum<C>{max[r], sum[r]} : max_sum(row, n, in);
        const C scale = log ? fn::log(all.sum) : C(1) / all.sum;
        row.map(
            n, row_at(y, r, n),
            [&](int64_t, S v) {
              const C shifted = widened(v) - all.max;
              return rounded<S>(log ? shifted - scale
                                    : fn::exp(shifted) * scale);
            },
            in);
      });
}

// `dot` is the whole row's sum(y dy) (for the log-softmax, sum(dy)), or null to
// compute it.
template <class S, class C = compute_t<S>>
void backward(Stream s, int64_t count, int64_t n, const void* y_,
              const void* dy_, int64_t dy_stride, const void* sum_, void* dx_,
              bool log) {
  const auto* y = static_cast<const S*>(y_);
  const auto* dy = static_cast<const S*>(dy_);
  const auto* given = static_cast<const C*>(sum_);
  auto* dx = static_cast<S*>(dx_);
  rows(
      s, count, n, DT_BODY(Row & row, int64_t r) {
        const S* yr = row_at(y, r, n);
        const S* dr = row_at(dy, r, dy_stride);
        const C sum = given ? given[r]
                      : log ? sum_of(row, n, dr)
                            : dot(row, n, yr, dr);
        row.map(
            n, row_at(dx, r, n),
            [&](int64_t, S v, S d) {
              const C w = widened(v), g = widened(d);
              return rounded<S>(log ? g - fn::exp(w) * sum : w * (g - sum));
            },
            yr, dr);
      });
}

template <class S, class C = compute_t<S>>
void max_sums(Stream s, int64_t count, int64_t n, const void* x_,
              int64_t stride, void* max_, void* sum_) {
  const auto* x = static_cast<const S*>(x_);
  auto *max = static_cast<C*>(max_), *sum = static_cast<C*>(sum_);
  rows(
      s, count, n, DT_BODY(Row & row, int64_t r) {
        const MaxSum<C> all = max_sum(row, n, row_at(x, r, stride));
        put(row, max + r, all.max);
        put(row, sum + r, all.sum);
      });
}

template <class S, class C = compute_t<S>>
void sums(Stream s, int64_t count, int64_t n, const void* x_, int64_t stride,
          void* sum_) {
  const auto* x = static_cast<const S*>(x_);
  auto* sum = static_cast<C*>(sum_);
  rows(
      s, count, n, DT_BODY(Row & row, int64_t r) {
        put(row, sum + r, sum_of(row, n, row_at(x, r, stride)));
      });
}

template <class S, class C = compute_t<S>>
void dots(Stream s, int64_t count, int64_t n, const void* y_, int64_t y_stride,
          const void* dy_, int64_t dy_stride, void* dot_) {
  const auto* y = static_cast<const S*>(y_);
  const auto* dy = static_cast<const S*>(dy_);
  auto* to = static_cast<C*>(dot_);
  rows(
      s, count, n, DT_BODY(Row & row, int64_t r) {
        put(row, to + r,
            dot(row, n, row_at(y, r, y_stride), row_at(dy, r, dy_stride)));
      });
}

}  // namespace

void PortableKernels::softmax_rows(Stream s, DType t, int64_t count, int64_t n,
                                   const void* x, int64_t x_stride,
                                   void* y) const {
  visit_float(t, "softmax", [&]<class S>() {
    softmax<S>(s, count, n, x, x_stride, nullptr, nullptr, y, false);
  });
}

void PortableKernels::log_softmax_rows(Stream s, DType t, int64_t count,
                                       int64_t n, const void* x,
                                       int64_t x_stride, void* y) const {
  visit_float(t, "log_softmax", [&]<class S>() {
    softmax<S>(s, count, n, x, x_stride, nullptr, nullptr, y, true);
  });
}

void PortableKernels::softmax_backward_rows(Stream s, DType t, int64_t count,
                                            int64_t n, const void* y,
                                            const void* dy, int64_t dy_stride,
                                            void* dx) const {
  visit_float(t, "softmax backward", [&]<class S>() {
    backward<S>(s, count, n, y, dy, dy_stride, nullptr, dx, false);
  });
}

void PortableKernels::log_softmax_backward_rows(Stream s, DType t,
                                                int64_t count, int64_t n,
                                                const void* y, const void* dy,
                                                int64_t dy_stride,
                                                void* dx) const {
  visit_float(t, "log_softmax backward", [&]<class S>() {
    backward<S>(s, count, n, y, dy, dy_stride, nullptr, dx, true);
  });
}

void PortableKernels::row_max_sum(Stream s, DType t, int64_t count, int64_t n,
                                  const void* x, int64_t x_stride, void* max,
                                  void* sum) const {
  visit_float(t, "row_max_sum", [&]<class S>() {
    max_sums<S>(s, count, n, x, x_stride, max, sum);
  });
}

void PortableKernels::row_sum(Stream s, DType t, int64_t count, int64_t n,
                              const void* x, int64_t x_stride,
                              void* sum) const {
  visit_float(t, "row_sum",
              [&]<class S>() { sums<S>(s, count, n, x, x_stride, sum); });
}

void PortableKernels::softmax_apply(Stream s, DType t, int64_t count, int64_t n,
                                    const void* x, int64_t x_stride,
                                    const void* max, const void* sum,
                                    void* y) const {
  visit_float(t, "softmax_apply", [&]<class S>() {
    softmax<S>(s, count, n, x, x_stride, max, sum, y, false);
  });
}

void PortableKernels::log_softmax_apply(Stream s, DType t, int64_t count,
                                        int64_t n, const void* x,
                                        int64_t x_stride, const void* max,
                                        const void* sum, void* y) const {
  visit_float(t, "log_softmax_apply", [&]<class S>() {
    softmax<S>(s, count, n, x, x_stride, max, sum, y, true);
  });
}

void PortableKernels::row_dot(Stream s, DType t, int64_t count, int64_t n,
                              const void* y, int64_t y_stride, const void* dy,
                              int64_t dy_stride, void* to) const {
  visit_float(t, "row_dot", [&]<class S>() {
    dots<S>(s, count, n, y, y_stride, dy, dy_stride, to);
  });
}

void PortableKernels::softmax_backward_apply(Stream s, DType t, int64_t count,
                                             int64_t n, const void* y,
                                             const void* dy, int64_t dy_stride,
                                             const void* sum, void* dx) const {
  visit_float(t, "softmax backward", [&]<class S>() {
    backward<S>(s, count, n, y, dy, dy_stride, sum, dx, false);
  });
}

void PortableKernels::log_softmax_backward_apply(
    Stream s, DType t, int64_t count, int64_t n, const void* y, const void* dy,
    int64_t dy_stride, const void* sum_dy, void* dx) const {
  visit_float(t, "log_softmax backward", [&]<class S>() {
    backward<S>(s, count, n, y, dy, dy_stride, sum_dy, dx, true);
  });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
