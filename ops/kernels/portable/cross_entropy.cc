// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/cross_entropy.h"

#include "dtensor/ops/functions/math.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "dtensor/ops/kernels/portable/row.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::compute_t;
using portable::each;
using portable::Row;
using portable::rows;
using portable::widened;

template <class S, class I, class C = compute_t<S>>
void pick(Stream s, const CePick& a) {
  each(
      s, a.logits.rows, DT_BODY(int64_t r) {
        const int64_t target = static_cast<const I*>(a.targets)[r];
        C& picked = static_cast<C*>(a.picked)[r];
        if (target >= a.lo && target < a.hi)
          picked = widened(row_at<S>(a.logits, r)[target - a.lo]);
        else if (!a.accumulate)
          picked = C(0);
      });
}

template <class I>
void range(Stream s, const CeRange& a) {
  const auto first = static_cast<uint64_t>(a.ignored),
             count = static_cast<uint64_t>(a.ignores);
  rows(
      s, 1, a.n, DT_BODY(Row & row, int64_t) {
        const Ends all = row.reduce(
            a.n, Ends(), Wider(),
            [&](int64_t, I target) {
              return static_cast<uint64_t>(target) - first < count
                         ? Ends()
                         : Ends::of(target);
            },
            static_cast<const I*>(a.targets));
        row.each(1, [&](int64_t) { all.write(a.ends); });
      });
}

template <class S, class I, class C = compute_t<S>>
void backward(Stream s, const CeBackward& a) {
  const int64_t n = a.hi - a.lo;
  const C off = a.vocabulary == 0
                    ? C(0)
                    : static_cast<C>(a.smoothing /
                                     static_cast<double>(a.vocabulary)),
          on = static_cast<C>(1 - a.smoothing);
  rows(
      s, a.logits.rows, n, DT_BODY(Row & row, int64_t r) {
        S* dx = row_at(static_cast<S*>(a.dlogits), r, a.dlogits_stride);
        const C scale = static_cast<const C*>(a.scale)[r];
        if (scale == C(0)) {
          row.fill(n, dx, S());
          return;
        }
        const C max = static_cast<const C*>(a.max)[r],
                log_sum = static_cast<const C*>(a.log_sum)[r];
        const auto slope = [&](auto v) {
          return exp_softmax(v - max - log_sum) - off;
        };
        const S* x = row_at<S>(a.logits, r);
        const int64_t target = static_cast<const I*>(a.targets)[r];
        const bool here = target >= a.lo && target < a.hi;
        const int64_t at = here ? target - a.lo : 0;
        const C at_target = here ? scale * (slope(widened(x[at])) - on) : C(0);
        row.sync();  // dx may be x
        row.map(
            n, dx, [&](auto v) { return scale * slope(v); }, x);
        if (here) row.put(dx + at, portable::rounded<S>(at_target));
      });
}

}  // namespace

DT_KERNEL(CePick)
void run(Stream s, const CePick& a) {
  visit_ids(a.target_type, "cross entropy", [&]<class I>() {
    visit_float(a.logits.type, "cross entropy",
                [&]<class S>() { pick<S, I>(s, a); });
  });
}

DT_KERNEL(CeRange)
void run(Stream s, const CeRange& a) {
  visit_ids(a.target_type, "cross entropy", [&]<class I>() { range<I>(s, a); });
}

DT_KERNEL(CeBackward)
void run(Stream s, const CeBackward& a) {
  visit_ids(a.target_type, "cross entropy", [&]<class I>() {
    visit_float(a.logits.type, "cross entropy",
                [&]<class S>() { backward<S, I>(s, a); });
  });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
