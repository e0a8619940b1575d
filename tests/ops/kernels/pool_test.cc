// SPDX-License-Identifier: Apache-2.0
// Compares pools with plain loops over the windows.
#include "dtensor/ops/kernels/pool.h"

#include <array>
#include <cmath>
#include <limits>

#include "tests/ops/kernels/testing.h"

namespace dtensor::kernels {
namespace {

using Space = Pool::Space;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

int64_t volume(const Space& s) { return s[0] * s[1] * s[2]; }
Space place(const Space& s, int64_t e) {
  return {e / s[2] / s[1], e / s[2] % s[1], e % s[2]};
}

// The index in x of what element m of y meets through tap k; -1 if that is
// outside.
int64_t met(const Pool& a, int64_t m, int64_t k) {
  const Space y = place(a.out, m), t = place(a.kernel, k);
  int64_t at = 0;
  for (size_t d = 0; d < 3; ++d) {
    const int64_t i = y[d] * a.stride[d] + t[d] * a.dilation[d] - a.pad[d];
    if (i < 0 || i >= a.in[d]) return -1;
    at = at * a.in[d] + i;
  }
  return at;
}

std::vector<Pool> pools(DType t) {
  return {{.type = t,
           .planes = 3,
           .in = {1, 7, 6},
           .out = {1, 4, 6},
           .kernel = {1, 3, 2},
           .stride = {1, 2, 1},
           .pad = {0, 1, 1}},
          {.type = t,
           .planes = 2,
           .in = {3, 4, 5},
           .out = {2, 2, 2},
           .kernel = {2, 2, 2},
           .stride = {1, 2, 1},
           .dilation = {1, 1, 3}},
          // Windows outside of x, and elements of x in no window.
          {.type = t,
           .planes = 1,
           .in = {1, 1, 8},
           .out = {1, 1, 5},
           .kernel = {1, 1, 2},
           .stride = {1, 1, 3},
           .pad = {0, 0, -1}},
          {.type = t,
           .planes = 2,
           .in = {1, 1, 0},
           .out = {1, 1, 1},
           .kernel = {1, 1, 3},
           .pad = {0, 0, 2}},
          {.type = t, .planes = 0, .in = {1, 4, 4}, .out = {1, 4, 4}}};
}

TEST(PoolKernels, AgainstLoops) {
  for (const DType t : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16,
                        DType::kI32, DType::kI64})
    for (const Pool& a : pools(t)) {
      const int64_t in = volume(a.in), out = volume(a.out);
      Elements x = Elements::random(t, a.planes * in, -3, 3, 1);
      // Few different values, so that many are equal.
      for (int64_t i = 0; i < x.size(); ++i) x.set(i, std::floor(x[i]));
      if (is_float(t) && x.size() > 9) x.set(9, kNaN);
      const Elements dy = Elements::random(t, a.planes * out, -2, 2, 2);
      std::vector<double> largest, picked;
      std::vector<double> spread(static_cast<size_t>(x.size()));
      std::vector<int64_t> taps, others;
      for (int64_t e = 0; e < a.planes * out; ++e) {
        double best =
            is_float(t) ? -std::numeric_limits<double>::infinity()
            : t == DType::kI32
                ? std::numeric_limits<int32_t>::lowest()
                : static_cast<double>(std::numeric_limits<int64_t>::lowest());
        int64_t tap = -1;
        for (int64_t k = 0; k < volume(a.kernel); ++k) {
          const int64_t i = met(a, e % out, k);
          if (i < 0) continue;
          const double v = x[e / out * in + i];
          if (tap < 0 || v > best || (std::isnan(v) && !std::isnan(best))) {
            best = v;
            tap = k;
          }
        }
        largest.push_back(best);
        taps.push_back(std::max<int64_t>(tap, 0));
        others.push_back(e * 7 % volume(a.kernel));
        const int64_t i = met(a, e % out, others.back());
        picked.push_back(i < 0 ? 0 : x[e / out * in + i]);
        if (i >= 0) spread[static_cast<size_t>(e / out * in + i)] += dy[e];
      }
      Elements y(t, dy.size(), 9), again(t, dy.size(), 9), dx(t, x.size(), 9);
      std::vector<int64_t> chosen(taps.size(), -1);
      run(PoolMax{
          .of = a, .x = x.data(), .y = y.data(), .taps = chosen.data()});
      EXPECT_TRUE(near(y, largest, 0)) << name(t);
      EXPECT_EQ(chosen, taps) << name(t);
      run(PoolPick{
          .of = a, .x = x.data(), .taps = others.data(), .y = again.data()});
      EXPECT_TRUE(near(again, picked, 0)) << name(t);
      run(PoolSpread{
          .of = a, .y = dy.data(), .taps = others.data(), .x = dx.data()});
      EXPECT_TRUE(near(dx, spread)) << name(t);
    }
}

TEST(PoolKernels, UnfoldAndFoldAgainstLoops) {
  for (const DType t : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16,
                        DType::kI32, DType::kI64})
    for (const Pool& a : pools(t)) {
      const int64_t in = volume(a.in), out = volume(a.out),
                    taps = volume(a.kernel);
      const Elements x = Elements::random(t, a.planes * in, -3, 3, 1);
      const Elements dy = Elements::random(t, a.planes * taps * out, -2, 2, 2);
      std::vector<double> unfolded, folded(static_cast<size_t>(x.size()));
      for (int64_t e = 0; e < dy.size(); ++e) {
        const int64_t i = met(a, e % out, e / out % taps);
        const int64_t at = e / out / taps * in + i;
        unfolded.push_back(i < 0 ? 0 : x[at]);
        if (i >= 0) folded[static_cast<size_t>(at)] += dy[e];
      }
      Elements y(t, dy.size(), 9), dx(t, x.size(), 9);
      run(Unfold{.of = a, .x = x.data(), .y = y.data()});
      EXPECT_TRUE(near(y, unfolded, 0)) << name(t);
      run(Fold{.of = a, .y = dy.data(), .x = dx.data()});
      EXPECT_TRUE(near(dx, folded)) << name(t);
    }
}

}  // namespace
}  // namespace dtensor::kernels
