// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "dtensor/nn/trainer.h"

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

}  // namespace
}  // namespace dtensor::nn
