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

#if defined(__CUDACC__) || defined(DT_CUDA_EMULATED)

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

#else

// The places of y in dimension d, [lo, hi), that meet x through tap k.
struct Span {
  int64_t lo, hi;
};
Span met_by(const Pool& a, size_t d, int64_t k) {
  // Place m meets m * stride - before.
  const int64_t before = a.pad[d] - k * a.dilation[d], step = a.stride[d];
  // How many places lie in a distance of n.
  const auto places = [&](int64_t n) {
    return n > 0 ? std::min(a.out[d], (n + step - 1) / step) : 0;
  };
  return {places(before), places(a.in[d] + before)};
}

// Keeps the larger elements of x, `kStep` apart (0: `step`), and their tap.
template <int64_t kStep, class S, class C>
void keep_larger(int64_t n, const S* x, int64_t step, int32_t tap, C* best,
                 int32_t* taps) {
  if constexpr (kStep > 0) step = kStep;
  for (int64_t j = 0; j < n; ++j) {
    const C v = static_cast<C>(x[j * step]), b = best[j];
    // Once the best is NaN, it stays.
    const bool better = (v > b) | ((v != v) & (b == b));
    best[j] = better ? v : b;
    taps[j] = better ? tap : taps[j];
  }
}

// A row is the innermost dimension of y. Each tap is compared with many
// elements of a row at once, so that the compiler uses vectors.
template <class S, class C = compute_t<S>>
void largest(Stream, const PoolMax& p) {
  constexpr int64_t kMost = 128;
  const Pool& a = p.of;
  const auto* x = static_cast<const S*>(p.x);
  auto* y = static_cast<S*>(p.y);
  int64_t* chosen = p.taps;
  C best[kMost];
  int32_t taps[kMost];
  const auto row = [&](const S* plane, int64_t m0, int64_t m1, int64_t begin,
                       int64_t n) {
    const Taps t0 = taps_of(a, 0, m0), t1 = taps_of(a, 1, m1);
    const bool none = t0.lo >= t0.hi || t1.lo >= t1.hi;
    for (int64_t j = 0; j < n; ++j) {
      const Taps t2 = taps_of(a, 2, begin + j);
      best[j] = smallest<C>();
      // The first tap stays if all elements are as small.
      taps[j] = none || t2.lo >= t2.hi
                    ? 0
                    : static_cast<int32_t>(
                          (t0.lo * a.kernel[1] + t1.lo) * a.kernel[2] + t2.lo);
    }
    for (int64_t k0 = t0.lo; k0 < t0.hi; ++k0)
      for (int64_t k1 = t1.lo; k1 < t1.hi; ++k1)
        for (int64_t k2 = 0; k2 < a.kernel[2]; ++k2) {
          const Span met = met_by(a, 2, k2);
          const int64_t lo = std::max(met.lo, begin),
                        hi = std::min(met.hi, begin + n);
          if (lo >= hi) continue;
          const int64_t step = a.stride[2];
          const Space first = {m0 * a.stride[0] + k0 * a.dilation[0] - a.pad[0],
                               m1 * a.stride[1] + k1 * a.dilation[1] - a.pad[1],
                               lo * step + k2 * a.dilation[2] - a.pad[2]};
          const S* from = plane + index(a.in, first);
          const auto tap =
              static_cast<int32_t>((k0 * a.kernel[1] + k1) * a.kernel[2] + k2);
          C* values = best + lo - begin;
          int32_t* of = taps + lo - begin;
          if (step == 1)
            keep_larger<1>(hi - lo, from, step, tap, values, of);
          else if (step == 2)
            keep_larger<2>(hi - lo, from, step, tap, values, of);
          else
            keep_larger<0>(hi - lo, from, step, tap, values, of);
        }
    for (int64_t j = 0; j < n; ++j) y[j] = static_cast<S>(best[j]);
    for (int64_t j = 0; j < n; ++j) chosen[j] = taps[j];
    y += n;
    chosen += n;
  };
  for (int64_t plane = 0; plane < a.planes; ++plane, x += volume(a.in))
    for (int64_t m0 = 0; m0 < a.out[0]; ++m0)
      for (int64_t m1 = 0; m1 < a.out[1]; ++m1)
        for (int64_t begin = 0; begin < a.out[2]; begin += kMost)
          row(x, m0, m1, begin, std::min(kMost, a.out[2] - begin));
}

// Adds each element of y to its place in x, which needs no divisions.
template <class S, class C = compute_t<S>>
void spread(Stream, const PoolSpread& p) {
  const Pool& a = p.of;
  const int64_t in = volume(a.in), taps = volume(a.kernel);
  std::vector<Space> steps;
  std::vector<int64_t> offsets;
  for (int64_t t = 0; t < taps; ++t) {
    const Space k = place(a.kernel, t);
    steps.push_back(
        {k[0] * a.dilation[0], k[1] * a.dilation[1], k[2] * a.dilation[2]});
    offsets.push_back(index(a.in, steps.back()));
  }
  // The places of y in dimension d whose windows lie in x.
  const auto whole = [&](size_t d) {
    const Span first = met_by(a, d, 0), last = met_by(a, d, a.kernel[d] - 1);
    const int64_t lo = std::max(first.lo, last.lo);
    return Span{lo, std::max(lo, std::min(first.hi, last.hi))};
  };
  const Span whole0 = whole(0), whole1 = whole(1), whole2 = whole(2);
  constexpr bool direct = std::is_same_v<S, C>;
  std::vector<C> rounded_later(direct ? 0 : static_cast<size_t>(in));
  const auto* y = static_cast<const S*>(p.y);
  const int64_t* chosen = p.taps;
  auto* const x = static_cast<S*>(p.x);
  for (int64_t plane = 0; plane < a.planes; ++plane) {
    C* sums = rounded_later.data();
    if constexpr (direct) sums = x + plane * in;
    std::fill_n(sums, in, C(0));
    const auto line = [&](int64_t m0, int64_t m1) {
      const Space from = {m0 * a.stride[0] - a.pad[0],
                          m1 * a.stride[1] - a.pad[1], -a.pad[2]};
      const int64_t first = index(a.in, from);
      const auto add = [&](int64_t m2, size_t tap) {
        C& sum = sums[first + m2 * a.stride[2] + offsets[tap]];
        sum = sum_of(sum, static_cast<C>(y[m2]));
      };
      // Only a window that leaves x may have a tap outside of x.
      const auto add_inside = [&](int64_t begin, int64_t end) {
        for (int64_t m2 = begin; m2 < end; ++m2) {
          const auto tap = static_cast<size_t>(chosen[m2]);
          bool inside = true;
          for (size_t d = 0; d < 3; ++d) {
            const int64_t i =
                from[d] + steps[tap][d] + (d == 2 ? m2 * a.stride[2] : 0);
            inside &= i >= 0 && i < a.in[d];
          }
          if (inside) add(m2, tap);
        }
      };
      if (m0 < whole0.lo || m0 >= whole0.hi || m1 < whole1.lo ||
          m1 >= whole1.hi)
        return add_inside(0, a.out[2]);
      add_inside(0, whole2.lo);
      for (int64_t m2 = whole2.lo; m2 < whole2.hi; ++m2)
        add(m2, static_cast<size_t>(chosen[m2]));
      add_inside(whole2.hi, a.out[2]);
    };
    for (int64_t m0 = 0; m0 < a.out[0]; ++m0)
      for (int64_t m1 = 0; m1 < a.out[1]; ++m1) {
        line(m0, m1);
        y += a.out[2];
        chosen += a.out[2];
      }
    if constexpr (!direct)
      for (int64_t e = 0; e < in; ++e)
        x[plane * in + e] = static_cast<S>(sums[e]);
  }
}

// Adds the elements of each tap to their places in x, row by row.
template <class S, class C = compute_t<S>>
void fold(Stream, const Fold& p) {
  const Pool& a = p.of;
  const int64_t in = volume(a.in), taps = volume(a.kernel);
  constexpr bool direct = std::is_same_v<S, C>;
  std::vector<C> rounded_later(direct ? 0 : static_cast<size_t>(in));
  const auto* y = static_cast<const S*>(p.y);
  auto* x = static_cast<S*>(p.x);
  for (int64_t plane = 0; plane < a.planes; ++plane, x += in) {
    C* sums = rounded_later.data();
    if constexpr (direct) sums = x;
    std::fill_n(sums, in, C(0));
    for (int64_t t = 0; t < taps; ++t, y += volume(a.out)) {
      const Space k = place(a.kernel, t);
      const Span m0 = met_by(a, 0, k[0]), m1 = met_by(a, 1, k[1]),
                 m2 = met_by(a, 2, k[2]);
      for (int64_t i0 = m0.lo; i0 < m0.hi; ++i0)
        for (int64_t i1 = m1.lo; i1 < m1.hi; ++i1) {
          const S* from = y + (i0 * a.out[1] + i1) * a.out[2];
          C* to =
              sums +
              index(a.in, {i0 * a.stride[0] + k[0] * a.dilation[0] - a.pad[0],
                           i1 * a.stride[1] + k[1] * a.dilation[1] - a.pad[1],
                           k[2] * a.dilation[2] - a.pad[2]});
          for (int64_t i2 = m2.lo; i2 < m2.hi; ++i2) {
            C& sum = to[i2 * a.stride[2]];
            sum = sum_of(sum, static_cast<C>(from[i2]));
          }
        }
    }
    if constexpr (!direct)
      for (int64_t e = 0; e < in; ++e) x[e] = static_cast<S>(sums[e]);
  }
}

#endif

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

template <class S>
void unfold(Stream s, const Unfold& p) {
  const Pool a = p.of;
  const int64_t in = volume(a.in), taps = volume(a.kernel);
  const auto* x = static_cast<const S*>(p.x);
  auto* const y = static_cast<S*>(p.y);
  const int64_t lines = a.out[0] * a.out[1];
  portable::rows(
      s, a.planes * taps * lines, a.out[2], DT_BODY(Row & row, int64_t r) {
        const int64_t m = r % lines, line = r / lines;
        const Space k = place(a.kernel, line % taps);
        const Space i = {
            m / a.out[1] * a.stride[0] + k[0] * a.dilation[0] - a.pad[0],
            m % a.out[1] * a.stride[1] + k[1] * a.dilation[1] - a.pad[1],
            k[2] * a.dilation[2] - a.pad[2]};
        const bool inside =
            i[0] >= 0 && i[0] < a.in[0] && i[1] >= 0 && i[1] < a.in[1];
        const S* from = x + line / taps * in + index(a.in, {i[0], i[1], 0});
        row.each(a.out[2], [=](int64_t m2) {
          const int64_t i2 = i[2] + m2 * a.stride[2];
          y[r * a.out[2] + m2] =
              inside && i2 >= 0 && i2 < a.in[2] ? from[i2] : S(0);
        });
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
