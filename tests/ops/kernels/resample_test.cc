// SPDX-License-Identifier: Apache-2.0
// Compares weighted sums of neighbours, and borders, with plain loops.
#include "dtensor/ops/kernels/resample.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "dtensor/ops/kernels/pad.h"
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

// x [3, 4, 5] with 2 and 1, no, and 3 and 4 further elements.
TEST(PadKernels, AgainstLoops) {
  const Shape in{3, 4, 5}, before{2, 0, 3}, out{6, 4, 12};
  const auto source = [](Edge edge, int64_t i, int64_t n) {
    if (edge == Edge::kNearest) return std::clamp<int64_t>(i, 0, n - 1);
    if (edge == Edge::kAround) return (i + n) % n;
    return i < 0 ? -i : i < n ? i : 2 * n - 2 - i;
  };
  for (const DType t : kAll)
    for (const Edge edge : {Edge::kMirrored, Edge::kNearest, Edge::kAround})
      for (const Shape& strides : {Shape{20, 5, 1}, Shape{1, 15, 3}}) {
        const Elements x = Elements::random(t, 60, -2, 3, 1);
        Elements y(t, numel(out), 1);
        std::vector<double> want;
        for (int64_t i = 0; i < out[0]; ++i)
          for (int64_t j = 0; j < out[1]; ++j)
            for (int64_t k = 0; k < out[2]; ++k)
              want.push_back(
                  x[source(edge, i - 2, 3) * strides[0] + j * strides[1] +
                    source(edge, k - 3, 5) * strides[2]]);
        run(PadEdges{.type = t,
                     .edge = edge,
                     .in = in,
                     .strides = strides,
                     .before = before,
                     .out = out,
                     .x = x.data(),
                     .y = y.data()});
        EXPECT_EQ(y.doubles(), want) << name(t) << " " << int(edge);
      }
}

}  // namespace
}  // namespace dtensor::kernels
