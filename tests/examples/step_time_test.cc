#include "examples/step_time.h"

#include <gtest/gtest.h>

namespace dtensor::examples {
namespace {

TEST(StepTime, TheFirstTwoStepsWarmUp) {
  EXPECT_DOUBLE_EQ(tokens_per_second({100, 50, 3, 1, 2}, 12), 6);
  EXPECT_DOUBLE_EQ(tokens_per_second({100, 50, 3, 1}, 12), 6);
  EXPECT_DOUBLE_EQ(tokens_per_second({100, 50, 4}, 12), 3);
  // Of two at most, there are no others.
  EXPECT_DOUBLE_EQ(tokens_per_second({2, 4}, 12), 4);
  EXPECT_DOUBLE_EQ(tokens_per_second({2}, 12), 6);
}

TEST(StepTime, ACollectivePaysItsLatencyOnce) {
  CostTable cost;
  cost.axes = {{{1000, 3.0}, {}}, {{20000, 7.0}, {}}};
  const auto event = [](AxisMask axes, int64_t bytes, int64_t collective,
                        int64_t times) {
    return CommEvent{Mesh::parse("dp=2,tp=2"),
                     axes,
                     StepKind::kAllGather,
                     "op",
                     "forward",
                     bytes,
                     0,
                     collective,
                     times};
  };
  const auto ps = [&](std::vector<CommEvent> events) {
    return communication_ps(events, cost);
  };
  EXPECT_EQ(ps({}), 0);
  EXPECT_EQ(ps({event(1, 100, 0, 1)}), 1000 + 300);
  EXPECT_EQ(ps({event(2, 100, 0, 1)}), 20000 + 700);
  // Two of their own; two tensors in one; one that is made three times.
  EXPECT_EQ(ps({event(1, 100, 0, 1), event(1, 10, 0, 1)}), 2 * 1000 + 330);
  EXPECT_EQ(ps({event(1, 100, 5, 1), event(1, 10, 5, 1)}), 1000 + 330);
  EXPECT_EQ(ps({event(1, 100, 5, 1), event(1, 10, 6, 1)}), 2 * 1000 + 330);
  EXPECT_EQ(ps({event(1, 100, 0, 3)}), 3 * 1000 + 300);
  EXPECT_EQ(ps({event(1, 100, 5, 3), event(1, 10, 5, 3)}), 3 * 1000 + 330);
}

// Stages of a pipeline send at the same time.
TEST(StepTime, OfTheRankThatIsAtItLongest) {
  CostTable cost;
  cost.axes = {{{1000, 3.0}, {}}};
  const auto to = [](int64_t rank, int64_t bytes) {
    return CommEvent{Mesh({{"pp", 1}}, {rank}),
                     0,
                     StepKind::kExchange,
                     "pipeline",
                     "forward",
                     bytes,
                     0};
  };
  const std::vector<CommEvent> events = {to(1, 100), to(2, 10), to(2, 20),
                                         to(3, 200)};
  EXPECT_EQ(communication_ps(events, cost), 2 * 1000 + 90);
}

}  // namespace
}  // namespace dtensor::examples
