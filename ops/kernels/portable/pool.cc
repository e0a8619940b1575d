// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/pool.h"

#include <limits>
#include <type_traits>

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

template <class S, class C = compute_t<S>>
void largest(Stream s, const PoolMax& p) {
  const Pool a = p.of;
  const int64_t out = volume(a.out), in = volume(a.in), taps = volume(a.kernel);
  const auto* x = static_cast<const S*>(p.x);
  auto* const y = static_cast<S*>(p.y);
  int64_t* const chosen = p.taps;
  portable::each(
      s, a.planes * out, DT_BODY(int64_t e) {
        const S* from = x + e / out * in;
        const Space m = place(a.out, e % out);
        C best = smallest<C>();
        int64_t tap = 0;
        bool any = false;
        for (int64_t t = 0; t < taps; ++t) {
          Space i;
          if (!to_x(a, m, place(a.kernel, t), i)) continue;
          const C v = static_cast<C>(from[index(a.in, i)]);
          // Once the best is NaN, it stays.
          if (any && !(v > best || (v != v && best == best))) continue;
          best = v;
          tap = t;
          any = true;
        }
        y[e] = static_cast<S>(best);
        chosen[e] = tap;
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

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
