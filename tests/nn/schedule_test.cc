// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "dtensor/nn/trainer.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

TEST(Schedule, WarmsUpAndGoesDownToATenth) {
  const CosineSchedule s{.lr = 2, .steps = 200};
  EXPECT_DOUBLE_EQ(s.at(0), 0.2);
  EXPECT_DOUBLE_EQ(s.at(4), 1.0);
  EXPECT_DOUBLE_EQ(s.at(9), 2.0);
  EXPECT_DOUBLE_EQ(s.at(10), 2.0);
  EXPECT_DOUBLE_EQ(s.at(105), 2 * (0.1 + 0.9 / 2));
  EXPECT_DOUBLE_EQ(s.at(200), 0.2);
  EXPECT_DOUBLE_EQ(s.at(1000), 0.2);
  for (int i = 10; i < 199; ++i) EXPECT_GT(s.at(i), s.at(i + 1));
}

TEST(Schedule, ShortRunsWarmUpForATenthOfTheSteps) {
  EXPECT_DOUBLE_EQ((CosineSchedule{.lr = 1, .steps = 50}.at(0)), 0.2);
  EXPECT_DOUBLE_EQ((CosineSchedule{.lr = 1, .steps = 5}.at(0)), 1);
  EXPECT_DOUBLE_EQ((CosineSchedule{.lr = 1, .steps = 1}.at(0)), 1);
  EXPECT_DOUBLE_EQ((CosineSchedule{.lr = 1, .steps = 50, .warmup = 0}.at(0)),
                   1);
}

TEST(Schedule, AWarmUpAsLongAsTheRunEndsAtTheFullRate) {
  const CosineSchedule s{.lr = 1, .steps = 4, .warmup = 8};
  EXPECT_DOUBLE_EQ(s.at(3), 0.5);
  // The full rate is reached only behind the last step.
  EXPECT_DOUBLE_EQ((CosineSchedule{.lr = 1, .steps = 8, .warmup = 8}.at(8)), 1);
}

void expect_rates(const Rate& rate, const std::vector<double>& want) {
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(rate(static_cast<int64_t>(i)), want[i], 1e-15) << i;
}

// torch 2.15's rates of 8 steps.
TEST(Rates, AreTorchs) {
  expect_rates(StepLR(0.5, 3), {0.5, 0.5, 0.5, 0.05, 0.05, 0.05, 0.005, 0.005});
  expect_rates(CosineAnnealingLR(0.5, 4, 0.1),
               {0.5, 0.4414213562373095, 0.3, 0.15857864376269054, 0.1,
                0.15857864376269049, 0.3, 0.4414213562373096});
  const TrainerOptions options{.rate = StepLR(0.5, 3, 0.5)};
  EXPECT_EQ(options.rate(6), 0.125);
  EXPECT_EQ(testing::error_of([] { StepLR(1, 0); }),
            "[rate] step_size is 0; write at least 1");
  EXPECT_EQ(testing::error_of([] { CosineAnnealingLR(1, 0); }),
            "[rate] T_max is 0; write at least 1");
}

}  // namespace
}  // namespace dtensor::nn
