// SPDX-License-Identifier: Apache-2.0
// Compares weighted sums of neighbours with plain loops.
#include "dtensor/ops/kernels/resample.h"

#include <limits>
#include <vector>

#include "tests/ops/kernels/testing.h"

namespace dtensor::kernels {
namespace {

TEST(ResampleKernels, AgainstLoops) {
  for (const DType t : kFloats)
    for (const int64_t inner : {1, 3, 40}) {
      const int64_t outer = 3, in = 6, out = 4, taps = 3;
      const std::vector<int64_t> first{2, 0, 0, 3};
      const std::vector<double> weights{0.5, -1, 2,   1, 0.25, 0,
                                        0,   1,  0.5, 1, 1,    1};
      const Elements x = Elements::random(t, outer * in * inner, -2, 3, 1);
      Elements y(t, outer * out * inner, 9);
      std::vector<double> want;
      for (int64_t o = 0; o < outer; ++o)
        for (int64_t m = 0; m < out; ++m)
          for (int64_t r = 0; r < inner; ++r) {
            want.push_back(0);
            for (int64_t k = 0; k < taps; ++k)
              want.back() +=
                  weights[static_cast<size_t>(m * taps + k)] *
                  x[(o * in + first[static_cast<size_t>(m)] + k) * inner + r];
          }
      run(Resample{.type = t,
                   .outer = outer,
                   .in = in,
                   .out = out,
                   .inner = inner,
                   .taps = taps,
                   .first = first.data(),
                   .weights = weights.data(),
                   .x = x.data(),
                   .y = y.data()});
      EXPECT_TRUE(near(y, want)) << name(t) << " " << inner;
    }
}

TEST(ResampleKernels, DoesNotReadAnElementOfWeightZero) {
  const DType t = DType::kF64;
  Elements x(t, 2, 5), y(t, 1, 9);
  x.set(1, std::numeric_limits<double>::infinity());
  const std::vector<int64_t> first{0};
  const std::vector<double> weights{2, 0};
  run(Resample{.type = t,
               .outer = 1,
               .in = 2,
               .out = 1,
               .taps = 2,
               .first = first.data(),
               .weights = weights.data(),
               .x = x.data(),
               .y = y.data()});
  EXPECT_EQ(y[0], 10);
}

}  // namespace
}  // namespace dtensor::kernels
