// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/create.h"

#include <limits>
#include <vector>

#include "tests/ops/structured_testing.h"

namespace dtensor::testing {
namespace {

TEST(Arange, HasACountThatFits) {
  EXPECT_EQ(error_of(1,
                     [](const Mesh& mesh) {
                       arange(0.0, 1e308, 1e-10, mesh, {}, DType::kF64);
                     }),
            "[arange] 0 to 1e+308 in steps of 1e-10 gives inf numbers; write a "
            "step that gives at most 2^53");
}

TEST(Linspace, HasBothEndsAndEqualDistances) {
  on_mesh("x=2", [](const Mesh& mesh) {
    for (const char* layout : {"R", "S0"}) {
      const auto numbers = [&](double start, double end, int64_t n) {
        return array_of(linspace(start, end, n, mesh, layout).full()).v;
      };
      EXPECT_EQ(numbers(2, 4, 5), (std::vector<double>{2, 2.5, 3, 3.5, 4}));
      EXPECT_EQ(numbers(1, -2, 4), (std::vector<double>{1, 0, -1, -2}));
      EXPECT_EQ(numbers(3, 7, 2), (std::vector<double>{3, 7}));
      EXPECT_EQ(numbers(3, 7, 1), (std::vector<double>{3}));
    }
    // Ten steps of 0.1 from 0 are not 1.
    const DistTensor x = linspace(0, 1, 11, mesh, {}, DType::kF64);
    EXPECT_EQ(x.full().at(10), 1);
  });
}

TEST(Triangle, TakesAnyDiagonal) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const std::vector<double> all{1, 1, 1, 1, 1, 1}, none(6);
    const auto of = [](const DistTensor& x) { return array_of(x.full()).v; };
    for (const char* layout : {"R", "S0", "S1"}) {
      const DistTensor x = ones({2, 3}, mesh, layout);
      EXPECT_EQ(of(tril(x)), (std::vector<double>{1, 0, 0, 1, 1, 0}));
      EXPECT_EQ(of(triu(x, 1)), (std::vector<double>{0, 1, 1, 0, 0, 1}));
      EXPECT_EQ(of(tril(x, -1)), (std::vector<double>{0, 0, 0, 1, 0, 0}));
      for (int64_t far : {int64_t{3}, int64_t{1} << 60,
                          std::numeric_limits<int64_t>::max()}) {
        EXPECT_EQ(of(tril(x, far)), all) << far;
        EXPECT_EQ(of(triu(x, far)), none) << far;
        EXPECT_EQ(of(tril(x, -far)), none) << far;
        EXPECT_EQ(of(triu(x, -far)), all) << far;
      }
    }
  });
}

}  // namespace
}  // namespace dtensor::testing
