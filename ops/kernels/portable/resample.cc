// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/resample.h"

#include <type_traits>

#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "dtensor/ops/kernels/portable/row.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::Row;
using portable::rows;
using portable::Scratch;

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

// For the host: adds one tap after the other to a row of y, [inner] or, if
// inner is 1, [out]. Halves have a row of sums beside it. R is dependent, since
// a GPU has no Row of its own here.
template <class S, class C = portable::compute_t<S>, class R = Row>
void by_tap(Stream s, const Resample& a) {
  const int64_t out = a.out, inner = a.inner, n = inner == 1 ? out : inner;
  Scratch scratch(s, (a.taps * out + n) * static_cast<int64_t>(sizeof(C)));
  C *const weights = scratch.as<C>(), *const sums = weights + a.taps * out;
  for (int64_t t = 0; t < a.taps; ++t)
    for (int64_t m = 0; m < out; ++m)
      weights[t * out + m] = static_cast<C>(a.weights[m * a.taps + t]);
  R row(nullptr);
  // add(sum) adds all taps.
  const auto make = [&](S* y, auto add) {
    C* sum = sums;
    if constexpr (std::is_same_v<S, C>) sum = y;
    row.fill(n, sum, C(0));
    add(sum);
    if constexpr (!std::is_same_v<S, C>)
      row.map(
          n, y, [](auto v) { return v; }, sum);
  };
  const auto* x = static_cast<const S*>(a.x);
  auto* y = static_cast<S*>(a.y);
  const int64_t* const first = a.first;
  for (int64_t o = 0; o < a.outer; ++o, x += a.in * inner, y += out * inner)
    if (inner == 1) {
      make(y, [&](C* sum) {
        for (int64_t t = 0; t < a.taps; ++t) {
          const C* const w = weights + t * out;
          const S* const from = x + t;
#pragma GCC ivdep
          for (int64_t m = 0; m < out; ++m) {
            const C v = static_cast<C>(from[first[m]]);
            sum[m] += w[m] != 0 ? v * w[m] : C(0);
          }
        }
      });
    } else {
      for (int64_t m = 0; m < out; ++m)
        make(y + m * inner, [&](C* sum) {
          for (int64_t t = 0; t < a.taps; ++t)
            if (const C w = weights[t * out + m]; w != 0)
              row.map(
                  inner, sum, [w](auto to, auto v) { return to + v * w; }, sum,
                  x + (first[m] + t) * inner);
        });
    }
}

template <class S>
void resample(Stream s, const Resample& args) {
  const Resample a = args;
  if constexpr (portable::kManyPasses) return by_tap<S>(s, a);
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
