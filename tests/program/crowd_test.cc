// SPDX-License-Identifier: Apache-2.0
#include "dtensor/program/crowd.h"

#include <gtest/gtest.h>
#include <sched.h>

#include "tests/dtensor/tcp_processes.h"

namespace dtensor {
namespace {

int64_t cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  return CPU_COUNT(&set);
}

TEST(Crowd, OneProcess) {
  const Crowd c = most_crowded(nullptr, 5);
  EXPECT_EQ(c.ranks, 5);
  EXPECT_EQ(c.cores, cores());
}

// Processes of one machine share its cores, so their ranks are added up.
TEST(Crowd, ProcessesOfOneMachine) {
  auto jobs = testing::tcp_jobs(2);
  testing::in_threads(2, [&](int p) {
    const Crowd c = most_crowded(jobs[static_cast<size_t>(p)].get(), 3 + p);
    if (p > 0) return;
    EXPECT_EQ(c.ranks, 3 + 4);
    EXPECT_EQ(c.cores, cores());
  });
  testing::part(jobs);
}

TEST(Crowd, WaitsForACoreDoNotCount) {
  const RunReport r = without_core_waits(
      {.seconds = 9, .waited_for = {5, 5, 5}, .waited_for_core = {0.5, 7, -1}});
  EXPECT_EQ(r.waited_for, (std::vector<double>{4.5, 0, 0}));
  EXPECT_EQ(straggler_text(r), "rank 0 was waited for 4.5 s of 9.0 s (50 %)");
}

TEST(Crowd, Text) {
  EXPECT_EQ(crowd_text({4, 4}), "");
  EXPECT_EQ(crowd_text({4, 0}), "");
  EXPECT_EQ(crowd_text({4, 2}),
            "4 ranks share 2 cores, so waiting for a rank cannot be told from "
            "waiting for a core");
  EXPECT_EQ(crowd_text({2, 1}).substr(0, 21), "2 ranks share 1 core,");
}

}  // namespace
}  // namespace dtensor
