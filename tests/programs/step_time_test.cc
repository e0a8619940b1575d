// SPDX-License-Identifier: Apache-2.0
#include "programs/step_time.h"

#include <gtest/gtest.h>

namespace dtensor::examples {
namespace {

TEST(StepTime, TheFirstTwoStepsWarmUp) {
  EXPECT_DOUBLE_EQ(tokens_per_second({100, 50, 3, 1, 2}, 12), 6);
  EXPECT_DOUBLE_EQ(tokens_per_second({100, 50, 3, 1}, 12), 6);
  EXPECT_DOUBLE_EQ(tokens_per_second({100, 50, 4}, 12), 3);
  // With two steps or fewer, all of them count.
  EXPECT_DOUBLE_EQ(tokens_per_second({2, 4}, 12), 4);
  EXPECT_DOUBLE_EQ(tokens_per_second({2}, 12), 6);
}

}  // namespace
}  // namespace dtensor::examples
