// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/resample.h"

#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "dtensor/ops/kernels/portable/row.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::Row;
using portable::rows;

// The sum for an element of y [.., m, ..]; `from` is the first element of x
// that it meets.
template <class S, class C = portable::compute_t<S>>
DT_HD S weighted_sum(const Resample& a, int64_t m, const S* from) {
  const double* const weights = a.weights + m * a.taps;
  C sum = C(0);
  for (int64_t t = 0; t < a.taps; ++t)
    if (weights[t] != 0)
      sum += static_cast<C>(weights[t]) * static_cast<C>(from[t * a.inner]);
  return static_cast<S>(sum);
}

template <class S>
void resample(Stream s, const Resample& args) {
  const Resample a = args;
  const auto* x = static_cast<const S*>(a.x);
  auto* const y = static_cast<S*>(a.y);
  if (a.inner == 1) {
    rows(
        s, a.outer, a.out, DT_BODY(Row & row, int64_t o) {
          row.each(a.out, [&](int64_t m) {
            y[o * a.out + m] = weighted_sum(a, m, x + o * a.in + a.first[m]);
          });
        });
    return;
  }
  rows(
      s, a.outer * a.out, a.inner, DT_BODY(Row & row, int64_t r) {
        const int64_t m = r % a.out;
        const S* const from = x + (r / a.out * a.in + a.first[m]) * a.inner;
        row.each(a.inner, [&](int64_t j) {
          y[r * a.inner + j] = weighted_sum(a, m, from + j);
        });
      });
}

}  // namespace

DT_KERNEL(Resample)
void run(Stream s, const Resample& a) {
  visit_float(a.type, "resample", [&]<class S>() { resample<S>(s, a); });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
