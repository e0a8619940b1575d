// SPDX-License-Identifier: Apache-2.0
// Which thread rank waits for which; see dtensor/comm/membership.h.
#include "dtensor/comm/membership.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

const Call kBarrier{StepKind::kBarrier, "test"};

// The third rank computes, and could come at any time.
TEST(MembershipTest, ACircleOfSomeRanksIsFound) {
  std::atomic<bool> over = false;
  const std::string e = testing::error_of([&] {
    run(3, [&](Runtime& rt) {
      const std::vector<int64_t> groups[] = {{0, 1, 2}, {1, 0}};
      while (rt.rank() == 2 && !over) std::this_thread::yield();
      if (rt.rank() == 2) return;
      try {
        rt.context()
            .communicator(groups[static_cast<size_t>(rt.rank())])
            .barrier(kBarrier);
      } catch (...) {
        over = true;
        throw;
      }
    });
  });
  EXPECT_EQ(e,
            "[barrier] ranks 0,1 wait for each other: rank 0 in barrier #1 for "
            "test of ranks 0,1,2; rank 1 in barrier #1 for test of ranks 1,0; "
            "let all ranks run the same operators in the same order");
}

// A process that was stopped has not waited meanwhile. A rank that waited for
// others of its own process once counted that time, too.
TEST(TimeWaitedTest, StoppedTimeDoesNotCount) {
  using std::chrono::milliseconds;
  const TimeWaited::Clock::time_point start;
  TimeWaited waited(start);
  EXPECT_EQ(waited.look(start + milliseconds(50)), milliseconds(50));
  EXPECT_EQ(waited.look(start + milliseconds(350)), milliseconds(350));
  EXPECT_EQ(waited.look(start + milliseconds(60'000)), milliseconds(650));
  EXPECT_EQ(waited.look(start + milliseconds(60'001)), milliseconds(651));
}

// More ranks than cores. In each round one rank is late, for longer than a
// search for circles takes, so the search sees ranks wait in calls that end
// meanwhile.
TEST(MembershipTest, LateRanksAreNoCircle) {
  constexpr int64_t kRanks = 24;
  run(kRanks, [](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"a", 6}, {"b", 4}});
    Communicator& rows = rt.context().communicator(mesh, 0b10);
    Communicator& all = rt.context().communicator(mesh, 0b11);
    for (int64_t round = 0; round < 6; ++round) {
      if (rt.rank() == round * 4)
        std::this_thread::sleep_for(std::chrono::milliseconds(230));
      for (int i = 0; i < 20; ++i) rows.barrier(kBarrier);
      all.barrier(kBarrier);
    }
  });
}

}  // namespace
}  // namespace dtensor
