// SPDX-License-Identifier: Apache-2.0
#include "dtensor/all_gather_bytes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "dtensor/runtime.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

TEST(AllGatherBytes, BroadcastsAValue) {
  run(3, [](Runtime& rt) {
    EXPECT_EQ(broadcast_value(10 * rt.rank()), 0);
    EXPECT_EQ(broadcast_value(0.5 * static_cast<double>(rt.rank()), 2), 1);
    EXPECT_EQ(broadcast_value("run " + std::to_string(rt.rank()), 1), "run 1");
    for (int64_t rank : {-1, 3})
      EXPECT_EQ(testing::error_of([&] { broadcast_value(1, rank); }),
                "[broadcast_value] this run has no rank " +
                    std::to_string(rank) + "; pass 0 to 2");
  });
  RunOptions dry;
  dry.world = 4;
  dry.dry_run = true;
  run(dry, [](Runtime&) { EXPECT_EQ(broadcast_value(7, 3), 7); });
}

TEST(AllGatherBytes, Barrier) {
  std::atomic<int> arrived = 0;
  run(4, [&](Runtime&) {
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      barrier();
      EXPECT_GE(arrived, 4 * round);
    }
  });
}

}  // namespace
}  // namespace dtensor
