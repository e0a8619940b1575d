// SPDX-License-Identifier: Apache-2.0
// Sends SIGINT and SIGTERM to programs.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <string>
#include <thread>
#include <tuple>

#include "tests/faults/child.h"
#include "tests/faults/ran.h"

namespace dtensor::testing {
namespace {

using Clock = std::chrono::steady_clock;

struct Stop {
  const char* flags;
  int64_t ranks;
};

// Programs in which ranks only compute; one computes and the others wait; and
// all call collectives.
const Stop kStops[] = {{"--case compute --odd 0", 1},
                       {"--case compute-and-wait", 3},
                       {"--case talk", 3}};

TEST(SignalsTest, EndARunWithASentence) {
  for (const auto& [signal, name, code] :
       {std::tuple(SIGINT, "SIGINT", 130), {SIGTERM, "SIGTERM", 143}})
    for (const Stop& stop : kStops) {
      Child child(faulty(stop.flags, stop.ranks));
      ASSERT_TRUE(child.says("fault")) << child.err();
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      const auto start = Clock::now();
      child.send(signal);
      child.send(signal);  // some senders send a signal twice
      EXPECT_EQ(child.wait(20), code) << stop.flags << "\n" << child.err();
      EXPECT_LT(Clock::now() - start, std::chrono::seconds(1)) << stop.flags;
      const std::string err = child.err(),
                        text = std::string("[run] interrupted by ") + name;
      // The message ends here: it does not name a straggler.
      EXPECT_NE(err.find("faulty: " + text + "\n"), err.npos) << err;
      const FaultyRun run = parsed(code, 0, err);
      EXPECT_EQ(run.ends.size(), static_cast<size_t>(stop.ranks)) << err;
      for (const auto& [rank, end] : run.ends)
        EXPECT_EQ(end.text, "threw " + text) << err;
    }
}

TEST(SignalsTest, ASecondOneEndsItAtOnce) {
  Child child(faulty("--case deaf", 2));
  ASSERT_TRUE(child.says("fault")) << child.err();
  child.send(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  const auto start = Clock::now();
  child.send(SIGINT);
  EXPECT_EQ(child.wait(20), 130) << child.err();
  EXPECT_LT(Clock::now() - start, std::chrono::milliseconds(500));
}

// nohup makes a program ignore signals; so do shells that start it in the
// background.
TEST(SignalsTest, WhatIsIgnoredStaysIgnored) {
  Child child("sh -c 'trap \"\" INT; exec " + faulty("--case deaf", 2) + "'");
  ASSERT_TRUE(child.says("fault")) << child.err();
  child.send(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  child.send(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  child.send(SIGKILL);
  EXPECT_EQ(child.wait(20), 137) << child.err();
}

}  // namespace
}  // namespace dtensor::testing
