// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "dtensor/nn/pipeline.h"
#include "dtensor/runtime.h"

namespace dtensor::nn {
namespace {

// Two tasks that take 2 and 3, with a pause of 4 between them.
std::vector<TimedTask> tasks(double begin) {
  return {{{}, begin, begin + 2}, {{}, begin + 6, begin + 9}};
}

TEST(PipelineTimes, WorkAndWaiting) {
  const PipelineTimes t = pipeline_times(tasks(1.5));
  EXPECT_DOUBLE_EQ(t.span, 9);
  EXPECT_DOUBLE_EQ(t.busy, 5);
  EXPECT_DOUBLE_EQ(t.bubble(), 4 / 9.0);
  EXPECT_EQ(pipeline_times({}).span, 0);
  EXPECT_EQ(PipelineTimes().bubble(), 0);
}

// The rank with the longest span counts, not the one that works most or ends
// last.
TEST(PipelineTimes, OfTheRankThatIsAtItLongest) {
  run(3, [](Runtime& rt) {
    const PipelineTimes all[] = {{9, 8}, {10, 4}, {5, 5}};
    const PipelineTimes most = longest(all[rt.rank()]);
    EXPECT_EQ(most.span, 10);
    EXPECT_EQ(most.busy, 4);
  });
}

}  // namespace
}  // namespace dtensor::nn
