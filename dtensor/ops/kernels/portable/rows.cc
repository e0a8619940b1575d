// Softmax and statistics of rows.
#include "dtensor/ops/functions/math.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::lowest;
using portable::Max;
using portable::Row;
using portable::rows;
using portable::Sum;
using portable::widened;

// The largest value so far, and the sum of exp(x - max).
template <class C>
struct MaxSum {
  C max, sum;
};
template <class C>
struct Merge {
  DT_HD MaxSum<C> operator()(const MaxSum<C>& a, const MaxSum<C>& b) const {
    const C max = Max()(a.max, b.max);
    return {max, scaled(a, max) + scaled(b, max)};
  }
  // Nothing so far is nothing, also below an infinite maximum.
  DT_HD static C scaled(const MaxSum<C>& a, C max) {
    return a.max == max || a.sum == C(0) ? a.sum : a.sum * fn::exp(a.max - max);
  }
};

// max and log(sum) of a row, in one pass over it.
template <class S, class C = portable::compute_t<S>>
DT_HD MaxSum<C> max_sum(Row& row, int64_t n, const S* x) {
  return row.reduce(
      n, MaxSum<C>{lowest<C>(), C(0)}, Merge<C>(),
      [](int64_t, S v) {
        return MaxSum<C>{widened(v), C(1)};
      },
      x);
}

template <class S>
void softmax(Stream s, int64_t count, int64_t n, const S* x, int64_t stride,
             S* y, bool log) {
  using C = portable::compute_t<S>;
  rows(
      s, count, n, DT_BODY(Row & row, int64_t r) {
        const S* in = x + r * stride;
        const MaxSum<C> all = max_sum(row, n, in);
        const C max = all.max, log_sum = log ? fn::log(all.sum) : C(0);
        row.map(
            n, y + r * n,
            [&](int64_t, S v) {
              const C shifted = widened(v) - max;
              return portable::rounded<S>(log ? shifted - log_sum
                                              : fn::exp(shifted) / all.sum);
            },
            in);
      });
}

}  // namespace

void PortableKernels::softmax_rows(Stream s, DType t, int64_t count, int64_t n,
                                   const void* x, int64_t x_stride,
                                   void* y) const {
  visit_float(t, "softmax", [&]<class S>() {
    softmax<S>(s, count, n, static_cast<const S*>(x), x_stride,
               static_cast<S*>(y), false);
  });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
