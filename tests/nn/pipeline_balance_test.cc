// SPDX-License-Identifier: Apache-2.0
// Divides layers into stages of about the same cost.
#include "dtensor/nn/pipeline_balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "tests/testing.h"

namespace dtensor::nn {
namespace {

using testing::error_of;

using Starts = std::vector<int64_t>;

double dearest(const std::vector<double>& costs, const Starts& starts) {
  double most = 0;
  for (size_t k = 0; k + 1 < starts.size(); ++k) {
    double sum = 0;
    for (int64_t i = starts[k]; i < starts[k + 1]; ++i)
      sum += costs[static_cast<size_t>(i)];
    most = std::max(most, sum);
  }
  return most;
}

TEST(PipelineBalance, Cuts) {
  const std::vector<double> even(7, 1);
  EXPECT_EQ(balanced_stages(even, 1), (Starts{0, 7}));
  EXPECT_EQ(balanced_stages(even, 2), (Starts{0, 4, 7}));
  EXPECT_EQ(balanced_stages(even, 7), (Starts{0, 1, 2, 3, 4, 5, 6, 7}));
  // A head that costs as much as three blocks gets a stage of its own.
  const std::vector<double> model = {0, 1, 1, 1, 1, 1, 1, 3};
  EXPECT_EQ(balanced_stages(model, 3), (Starts{0, 4, 7, 8}));
  const std::vector<double> free(3, 0);
  EXPECT_EQ(balanced_stages(free, 3), (Starts{0, 1, 2, 3}));
}

// Tries all cuts.
TEST(PipelineBalance, NoCutIsBetter) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> cost(0, 9);
  for (int64_t n = 1; n <= 9; ++n)
    for (int64_t stages = 1; stages <= n; ++stages) {
      std::vector<double> costs(static_cast<size_t>(n));
      for (double& c : costs) c = cost(random);
      double least = 1e9;
      Starts starts = {0};
      const std::function<void()> rest = [&] {
        const auto made = static_cast<int64_t>(starts.size());
        if (made == stages) {
          starts.push_back(n);
          least = std::min(least, dearest(costs, starts));
          return starts.pop_back();
        }
        for (int64_t i = starts.back() + 1; i <= n - (stages - made); ++i) {
          starts.push_back(i);
          rest();
          starts.pop_back();
        }
      };
      rest();
      const Starts found = balanced_stages(costs, stages);
      ASSERT_EQ(static_cast<int64_t>(found.size()), stages + 1);
      for (size_t k = 0; k + 1 < found.size(); ++k)
        EXPECT_LT(found[k], found[k + 1]);
      EXPECT_EQ(dearest(costs, found), least) << n << " in " << stages;
    }
}

TEST(PipelineBalance, Refuses) {
  const std::vector<double> costs = {1, -2};
  EXPECT_EQ(error_of([&] { balanced_stages(costs, 3); }),
            "[pipeline] the number of layers is 2 and that of stages 3; write "
            "at least 1 stage, and at least as many layers as stages");
  EXPECT_EQ(error_of([&] { balanced_stages(costs, 2); }),
            "[pipeline] layer 1 costs -2; write 0 or more for each");
}

}  // namespace
}  // namespace dtensor::nn
