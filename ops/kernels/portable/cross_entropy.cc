// Cross entropy.
#include "dtensor/ops/functions/math.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "dtensor/ops/kernels/portable/row.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::compute_t;
using portable::each;
using portable::rounded;
using portable::Row;
using portable::rows;
using portable::widened;

template <class S, class I, class C = compute_t<S>>
void pick(Stream s, int64_t count, const S* logits, int64_t stride,
          const I* targets, int64_t lo, int64_t hi, bool accumulate,
          C* picked) {
  each(
      s, count, DT_BODY(int64_t r) {
        const int64_t target = targets[r];
        if (target >= lo && target < hi)
          picked[r] = widened(logits[r * stride + target - lo]);
        else if (!accumulate)
          picked[r] = C(0);
      });
}

struct Ends {
  int64_t largest, inverted;  // ~ of the smallest target
};
struct Wider {
  DT_HD Ends operator()(const Ends& a, const Ends& b) const {
    return {portable::Max()(a.largest, b.largest),
            portable::Max()(a.inverted, b.inverted)};
  }
};

template <class I>
void range(Stream s, int64_t n, const I* targets, int64_t ignored,
           int64_t* ends) {
  const int64_t none = portable::lowest<int64_t>();
  rows(
      s, 1, n, DT_BODY(Row & row, int64_t) {
        const Ends all = row.reduce(
            n, Ends{none, none}, Wider(),
            [&](int64_t, I target) {
              const int64_t t = target;
              return t == ignored ? Ends{none, none} : Ends{t, ~t};
            },
            targets);
        row.each(1, [&](int64_t) {
          ends[0] = all.largest;
          ends[1] = all.inverted;
        });
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
      s, a.rows, n, DT_BODY(Row & row, int64_t r) {
        S* dx = row_at(static_cast<S*>(a.dlogits), r, a.dlogits_stride);
        const C scale = static_cast<const C*>(a.scale)[r];
        if (scale == C(0)) {
          row.map(n, dx, [](int64_t) { return S(); });
          return;
        }
        const C max = static_cast<const C*>(a.max)[r],
                log_sum = static_cast<const C*>(a.log_sum)[r];
        const int64_t target = static_cast<const I*>(a.targets)[r] - a.lo;
        row.map(
            n, dx,
            [&](int64_t j, S v) {
              const C p = fn::exp(widened(v) - max - log_sum) - off;
              return rounded<S>(scale * (j == target ? p - on : p));
            },
            row_at(static_cast<const S*>(a.logits), r, a.stride));
      });
}

}  // namespace

void PortableKernels::ce_pick(Stream s, DType t, DType target_type,
                              int64_t count, const void* logits, int64_t stride,
                              const void* targets, int64_t lo, int64_t hi,
                              bool accumulate, void* picked) const {
  visit_ids(target_type, "cross entropy", [&]<class I>() {
    visit_float(t, "cross entropy", [&]<class S>() {
      pick(s, count, static_cast<const S*>(logits), stride,
           static_cast<const I*>(targets), lo, hi, accumulate,
           static_cast<compute_t<S>*>(picked));
    });
  });
}

void PortableKernels::ce_range(Stream s, DType target_type, int64_t n,
                               const void* targets, int64_t ignored,
                               int64_t* ends) const {
  visit_ids(target_type, "cross entropy", [&]<class I>() {
    range(s, n, static_cast<const I*>(targets), ignored, ends);
  });
}

void PortableKernels::ce_backward(Stream s, DType t, DType target_type,
                                  const CeBackward& a) const {
  visit_ids(target_type, "cross entropy", [&]<class I>() {
    visit_float(t, "cross entropy", [&]<class S>() { backward<S, I>(s, a); });
  });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
