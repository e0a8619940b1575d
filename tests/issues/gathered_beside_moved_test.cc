// SPDX-License-Identifier: Apache-2.0
// An operator that could read one parameter in place, since it moved, did not
// gather another one that is gathered on use, and computed on nothing.
#include <gtest/gtest.h>

#include <vector>

#include "dtensor/ops/contraction.h"
#include "dtensor/runtime.h"
#include "dtensor/scopes.h"

namespace dtensor {
namespace {

constexpr int64_t kRows = 512, kIn = 256, kOut = 128;

double x_at(int64_t i) { return static_cast<double>(i % 7) - 3; }
double w_at(int64_t i) { return static_cast<double>(i % 5) - 2; }
double b_at(int64_t i) { return static_cast<double>(i % 3); }

template <class F>
std::vector<double> list(int64_t n, F at) {
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(at(i));
  return values;
}

TEST(GatheredBesideMoved, ABiasOnUseAndAWeightThatMoves) {
  const Mesh m = Mesh::parse("dp=2");
  run(2, [&](Runtime&) {
    const auto make = [&](const Shape& shape, const std::vector<double>& v) {
      return DistTensor::from_global(Tensor::from(shape, v.data()), m, "S0");
    };
    const DistTensor x = make({kRows, kIn}, list(kRows * kIn, x_at));
    DistTensor w = make({kOut, kIn}, list(kOut * kIn, w_at));
    DistTensor b = make({kOut}, list(kOut, b_at));
    w.as_parameter(Keep::kGatherOnUse);
    b.gather_on_use("R");
    std::vector<double> want;
    for (int64_t i = 0; i < kRows; ++i)
      for (int64_t o = 0; o < kOut; ++o) {
        double sum = b_at(o);
        for (int64_t k = 0; k < kIn; ++k)
          sum += x_at(i * kIn + k) * w_at(o * kIn + k);
        want.push_back(sum);
      }
    const NoGrad no_grad;
    EXPECT_EQ(linear(x, w, b).full().to_doubles(), want);
  });
}

}  // namespace
}  // namespace dtensor
