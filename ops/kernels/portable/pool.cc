// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/pool.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

#include "dtensor/ops/kernels/operands.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "dtensor/ops/kernels/portable/windows.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::compute_t;
using portable::index;
using portable::place;
using portable::Row;
using portable::Space;
using portable::to_x;
using portable::to_y;
using portable::volume;

template <class C>
constexpr C smallest() {
  if constexpr (std::numeric_limits<C>::has_infinity)
    return -std::numeric_limits<C>::infinity();
  else
    return std::numeric_limits<C>::lowest();
}

// The taps of dimension d, [lo, hi), through which place m of y meets x.
struct Taps {
  int64_t lo, hi;
};
DT_HD inline Taps taps_of(const Pool& a, size_t d, int64_t m) {
  const int64_t first = m * a.stride[d] - a.pad[d], step = a.dilation[d];
  // How many taps lie in a distance of n > 0.
  const auto taps = [&](int64_t n) {
    return step == 1 ? n : (n + step - 1) / step;
  };
  const int64_t hi = first < a.in[d] ? taps(a.in[d] - first) : 0;
  return {first < 0 ? taps(-first) : 0, hi < a.kernel[d] ? hi : a.kernel[d]};
}

// A row is the innermost dimension of y, so that the places of the others are
// computed once for it.
template <class S, class C = compute_t<S>>
void largest(Stream s, const PoolMax& p) {
  const Pool a = p.of;
  const auto* x = static_cast<const S*>(p.x);
  auto* const y = static_cast<S*>(p.y);
  int64_t* const chosen = p.taps;
  portable::rows(
      s, a.planes * a.out[0] * a.out[1], a.out[2],
      DT_BODY(Row & row, int64_t r) {
        const Space m = {r / a.out[1] % a.out[0], r % a.out[1], 0};
        const S* plane = x + r / (a.out[0] * a.out[1]) * volume(a.in);
        const Taps t0 = taps_of(a, 0, m[0]), t1 = taps_of(a, 1, m[1]);
        row.each(a.out[2], [=](int64_t m2) {
          const Taps t2 = taps_of(a, 2, m2);
          C best = smallest<C>();
          // The first tap stays if all elements are as small.
          int64_t tap = (t0.lo * a.kernel[1] + t1.lo) * a.kernel[2] + t2.lo;
          if (t0.lo >= t0.hi || t1.lo >= t1.hi || t2.lo >= t2.hi) tap = 0;
          for (int64_t k0 = t0.lo; k0 < t0.hi; ++k0)
            for (int64_t k1 = t1.lo; k1 < t1.hi; ++k1) {
              const Space i = {m[0] * a.stride[0] + k0 * a.dilation[0],
                               m[1] * a.stride[1] + k1 * a.dilation[1],
                               m2 * a.stride[2]};
              const int64_t line = index(a.in, i) - index(a.in, a.pad);
              const int64_t first = (k0 * a.kernel[1] + k1) * a.kernel[2];
              for (int64_t k2 = t2.lo; k2 < t2.hi; ++k2) {
                const C v = static_cast<C>(plane[line + k2 * a.dilation[2]]);
                // Once the best is NaN, it stays.
                const bool better = (v > best) | ((v != v) & (best == best));
                best = better ? v : best;
                tap = better ? first + k2 : tap;
              }
            }
          y[r * a.out[2] + m2] = static_cast<S>(best);
          chosen[r * a.out[2] + m2] = tap;
        });
      });
}

template <class S>
void pick(Stream s, const PoolPick& p) {
  const Pool a = p.of;
  const int64_t out = volume(a.out), in = volume(a.in);
  const auto* x = static_cast<const S*>(p.x);
  auto* const y = static_cast<S*>(p.y);
  const int64_t* const chosen = p.taps;
  portable::each(
      s, a.planes * out, DT_BODY(int64_t e) {
        Space i;
        const bool inside =
            to_x(a, place(a.out, e % out), place(a.kernel, chosen[e]), i);
        y[e] = inside ? x[e / out * in + index(a.in, i)] : S(0);
      });
}

#if defined(__CUDACC__) || defined(DT_CUDA_EMULATED)

template <class S, class C = compute_t<S>>
void spread(Stream s, const PoolSpread& p) {
  const Pool a = p.of;
  const int64_t out = volume(a.out), in = volume(a.in), taps = volume(a.kernel);
  const auto* y = static_cast<const S*>(p.y);
  auto* const x = static_cast<S*>(p.x);
  const int64_t* const chosen = p.taps;
  portable::each(
      s, a.planes * in, DT_BODY(int64_t e) {
        const int64_t first = e / in * out;
        const Space i = place(a.in, e % in);
        C sum = C(0);
        for (int64_t t = 0; t < taps; ++t) {
          Space m;
          if (!to_y(a, i, place(a.kernel, t), m)) continue;
          const int64_t at = first + index(a.out, m);
          if (chosen[at] == t) sum = sum_of(sum, static_cast<C>(y[at]));
        }
        x[e] = static_cast<S>(sum);
      });
}

#else

// Adds each element of y to its place in x, which needs no divisions.
template <class S, class C = compute_t<S>>
void spread(Stream, const PoolSpread& p) {
  const Pool& a = p.of;
  const int64_t in = volume(a.in), taps = volume(a.kernel);
  std::vector<Space> steps;
  for (int64_t t = 0; t < taps; ++t) {
    const Space k = place(a.kernel, t);
    steps.push_back(
        {k[0] * a.dilation[0], k[1] * a.dilation[1], k[2] * a.dilation[2]});
  }
  constexpr bool direct = std::is_same_v<S, C>;
  std::vector<C> rounded_later(direct ? 0 : static_cast<size_t>(in));
  const auto* y = static_cast<const S*>(p.y);
  const int64_t* chosen = p.taps;
  auto* const x = static_cast<S*>(p.x);
  for (int64_t plane = 0; plane < a.planes; ++plane) {
    C* sums = rounded_later.data();
    if constexpr (direct) sums = x + plane * in;
    std::fill_n(sums, in, C(0));
    Space from;
    for (int64_t m0 = 0; m0 < a.out[0]; ++m0) {
      from[0] = m0 * a.stride[0] - a.pad[0];
      for (int64_t m1 = 0; m1 < a.out[1]; ++m1) {
        from[1] = m1 * a.stride[1] - a.pad[1];
        for (int64_t m2 = 0; m2 < a.out[2]; ++m2, ++y, ++chosen) {
          from[2] = m2 * a.stride[2] - a.pad[2];
          const Space& step = steps[static_cast<size_t>(*chosen)];
          const Space i = {from[0] + step[0], from[1] + step[1],
                           from[2] + step[2]};
          // A window that meets no element of x has a tap outside of x.
          if (i[0] < 0 || i[0] >= a.in[0] || i[1] < 0 || i[1] >= a.in[1] ||
              i[2] < 0 || i[2] >= a.in[2])
            continue;
          C& sum = sums[index(a.in, i)];
          sum = sum_of(sum, static_cast<C>(*y));
        }
      }
    }
    if constexpr (!direct)
      for (int64_t e = 0; e < in; ++e)
        x[plane * in + e] = static_cast<S>(sums[e]);
  }
}

#endif

template <class S>
void unfold(Stream s, const Unfold& p) {
  const Pool a = p.of;
  const int64_t out = volume(a.out), in = volume(a.in), taps = volume(a.kernel);
  const auto* x = static_cast<const S*>(p.x);
  auto* const y = static_cast<S*>(p.y);
  portable::each(
      s, a.planes * taps * out, DT_BODY(int64_t e) {
        Space i;
        const bool inside =
            to_x(a, place(a.out, e % out), place(a.kernel, e / out % taps), i);
        y[e] = inside ? x[e / out / taps * in + index(a.in, i)] : S(0);
      });
}

template <class S, class C = compute_t<S>>
void fold(Stream s, const Fold& p) {
  const Pool a = p.of;
  const int64_t out = volume(a.out), in = volume(a.in), taps = volume(a.kernel);
  const auto* y = static_cast<const S*>(p.y);
  auto* const x = static_cast<S*>(p.x);
  portable::each(
      s, a.planes * in, DT_BODY(int64_t e) {
        const Space i = place(a.in, e % in);
        C sum = C(0);
        for (int64_t t = 0; t < taps; ++t) {
          Space m;
          if (!to_y(a, i, place(a.kernel, t), m)) continue;
          const S v = y[(e / in * taps + t) * out + index(a.out, m)];
          sum = sum_of(sum, static_cast<C>(v));
        }
        x[e] = static_cast<S>(sum);
      });
}

}  // namespace

DT_KERNEL(PoolMax)
void run(Stream s, const PoolMax& a) {
  visit_numbers(a.of.type, "max_pool", [&]<class S>() { largest<S>(s, a); });
}

DT_KERNEL(PoolPick)
void run(Stream s, const PoolPick& a) {
  visit_numbers(a.of.type, "max_pool", [&]<class S>() { pick<S>(s, a); });
}

DT_KERNEL(PoolSpread)
void run(Stream s, const PoolSpread& a) {
  visit_numbers(a.of.type, "max_pool", [&]<class S>() { spread<S>(s, a); });
}

DT_KERNEL(Unfold)
void run(Stream s, const Unfold& a) {
  visit_numbers(a.of.type, "unfold", [&]<class S>() { unfold<S>(s, a); });
}

DT_KERNEL(Fold)
void run(Stream s, const Fold& a) {
  visit_numbers(a.of.type, "fold", [&]<class S>() { fold<S>(s, a); });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
