// SPDX-License-Identifier: Apache-2.0
// The text of TakeRows with weights.
#pragma once
#include <algorithm>
#include <cstdint>

#ifndef __CUDACC__
#include "dtensor/device/copy.h"
#endif
#include "dtensor/ops/kernels/portable/row.h"
#include "dtensor/ops/kernels/select.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {

// Row r's indices and weights, of which a tap has `tap`, and its range. Any
// index may be outside, so that there is no branch: such an index reads `none`,
// since x may have infinities.
template <class S>
struct Weighted {
  DT_HD Weighted(const TakeRows& a, int64_t r)
      : taps(a.taps),
        tap(a.x.rows / a.share * a.k),
        lo(static_cast<uint64_t>(a.lo)),
        n(static_cast<uint64_t>(a.hi > a.lo ? a.hi - a.lo : 0)),
        index(a.index + r / a.share * a.k),
        weights(static_cast<const S*>(a.weights) + r / a.share * a.k) {}
  // The sum in column j. get(from) returns the elements of an index, which are
  // `step` apart.
  template <class Get>
  DT_HD auto sum(int64_t j, const S* x, int64_t step, const S* none,
                 Get get) const {
    const S* const from[] = {none, x};
    decltype(get(none)) all(0);
    for (int64_t i = j, t = 0; t < taps; ++t, i += tap) {
      const uint64_t at = static_cast<uint64_t>(index[i]) - lo;
      const bool inside = at < n;
      all = all + get(from[inside] + static_cast<int64_t>(at) * step *
                                         static_cast<int64_t>(inside)) *
                      decltype(all)(portable::widened(weights[i]));
    }
    return all;
  }
  int64_t taps, tap;
  uint64_t lo, n;
  const int64_t* index;
  const S* weights;
};

template <class S>
void take_weighted(Stream s, const TakeRows& a) {
  portable::rows(
      s, a.x.rows, a.k, DT_BODY(portable::Row & row, int64_t r) {
        const Weighted<S> of(a, r);
        const S none{};
        const S* const x = row_at<S>(a.x, r);
        S* const to = row_at(static_cast<S*>(a.out), r, a.k);
        row.each(a.k, [&](int64_t j) {
          to[j] =
              portable::rounded<S>(of.sum(j, x, 1, &none, [](const S* from) {
                return portable::widened(*from);
              }));
        });
      });
}

#ifndef __CUDACC__
// For the host: as many rows as a register has elements, if they share their
// indices, become columns first, and then one load reads all of their elements.
template <class S>
void take_weighted_columns(Stream s, const TakeRows& a) {
  using V = simd::Vec<portable::compute_t<S>>;
  constexpr int64_t w = V::n, item = sizeof(S);
  const int64_t n = std::max<int64_t>(a.hi - a.lo, 0);
  portable::Scratch scratch(s, (n + a.k) * w * item);
  S *const x = scratch.as<S>(), *const y = x + n * w;
  std::fill_n(x, n * w, S());
  const S none[w] = {};
  for (int64_t r = 0, m = 0; r < a.x.rows; r += m) {
    m = std::min(w, a.share - r % a.share);
    copy_strided(item, Shape{n, m}, x, Shape{w, 1}, row_at<S>(a.x, r),
                 Shape{1, a.x.stride});
    const Weighted<S> of(a, r);
    for (int64_t j = 0; j < a.k; ++j)
      simd::store(y + j * w, of.sum(j, x, w, none, [](const S* from) {
        return simd::load(from);
      }));
    copy_strided(item, Shape{m, a.k}, static_cast<S*>(a.out) + r * a.k,
                 Shape{a.k, 1}, y, Shape{1, w});
  }
}
#endif

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
