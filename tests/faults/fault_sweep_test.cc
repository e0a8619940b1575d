// SPDX-License-Identifier: Apache-2.0
// Makes a fault at every collective of a training step in turn. Whatever else
// is under way then, the run must end in time, and with the right error.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/faults/ran.h"
#include "tests/mpirun.h"

namespace dtensor::testing {
namespace {

[[maybe_unused]] const ::testing::Environment* const kLauncher =
    ::testing::AddGlobalTestEnvironment(new NeedsItsLauncher);

constexpr int64_t kRanks = 4;

struct Kind {
  std::string fault;
  std::string flags;
  // The program's message and each rank's error must contain one of these
  // texts.
  std::vector<std::string> says;
};

bool holds(const std::string& text, const std::vector<std::string>& any) {
  for (const std::string& one : any)
    if (text.find(one) != std::string::npos) return true;
  return false;
}

void expect_ended(const Kind& kind, int64_t odd, const FaultyRun& run) {
  const bool killed = kind.fault == "kill" || kind.fault == "exit";
  if (!killed) {
    EXPECT_EQ(run.code, 1) << run.all;
  }
  EXPECT_NE(run.code, 0) << run.all;
  EXPECT_TRUE(holds(run.sentence, kind.says)) << run.all;
  EXPECT_EQ(run.ends.size(), static_cast<size_t>(kRanks - killed)) << run.all;
  EXPECT_LE(run.told_after(), kind.fault == "stall" ? 2.5 : 1) << run.all;
  for (const auto& [rank, end] : run.ends) {
    // A rank that waits for no other rank any more may have ended well.
    if (end.text == "done") continue;
    if (kind.fault == "leave" && rank == odd && end.text == "left") continue;
    EXPECT_TRUE(holds(end.text, kind.says)) << "rank " << rank << "\n"
                                            << run.all;
  }
}

void sweep(const std::string& which, const Kind& kind) {
  const std::string flags =
      "--case " + which + " --mesh dp=2,tp=2 " + kind.flags;
  const FaultyRun whole = run_faulty(flags, kRanks);
  ASSERT_EQ(whole.code, 0) << whole.all;
  int64_t faults = 0;
  // (Starting processes takes long, so only some collectives are tried if ranks
  // are processes, unless FAULTS_ALL is set.)
  const bool all = !ranks_are_processes() || std::getenv("FAULTS_ALL");
  const int64_t stride = all ? 1 : 17;
  // Runs with a stall mostly sleep, so several can run at the same time.
  const int64_t at_once = kind.fault == "stall" ? 4 : 1;
  bool over = false;
  for (int64_t at = 1; at < 1000 && !over;) {
    const int64_t first = at;
    std::vector<std::string> environments;
    for (int64_t i = 0; i < at_once; ++i, at += stride)
      environments.push_back("FAULT=" + kind.fault +
                             " FAULT_AT=" + std::to_string(at) +
                             " FAULT_RANK=" + std::to_string(at % kRanks) +
                             // Longer than the timeout of 1 s. A process that
                             // does not answer within another second is ended.
                             (ranks_are_processes() ? " FAULT_SECONDS=1.5"
                                                    : " FAULT_SECONDS=0.8"));
    at = first;
    for (const FaultyRun& run : run_faulty(flags, kRanks, environments)) {
      SCOPED_TRACE(which + " " + kind.fault + " at " + std::to_string(at));
      if (run.fault_at == 0) {  // the step has fewer collectives
        EXPECT_EQ(run.code, 0) << run.all;
        over = true;
      } else {
        EXPECT_FALSE(over);
        ++faults;
        expect_ended(kind, at % kRanks, run);
      }
      at += stride;
      if (::testing::Test::HasFailure()) return;
    }
  }
  // The step must have collectives at all, for the test to mean anything.
  EXPECT_GE(faults, 20 / stride);
}

class SweepTest : public ::testing::TestWithParam<const char*> {};

TEST_P(SweepTest, Crash) {
  sweep(GetParam(), {"crash", "", {"crashes at its"}});
}
// (A rank's second thread cannot leave the run, and throws instead.)
TEST_P(SweepTest, Leave) {
  sweep(GetParam(), {"leave", "", {"has left the program", "crashes at its"}});
}
TEST_P(SweepTest, OtherType) {
  sweep(GetParam(), {"dtype", "", {"disagree about collective"}});
}
TEST_P(SweepTest, OtherFingerprint) {
  sweep(GetParam(), {"fingerprint", "", {"disagree about collective"}});
}
// (Several jobs of processes run at once, so a rank that does not stall may
// have to wait long for a processor.)
TEST_P(SweepTest, Stall) {
  const char* flags = ranks_are_processes() ? "--timeout 1" : "--timeout 0.3";
  sweep(GetParam(), {"stall", flags, {"did not come"}});
}

// Case 9: the other ranks outlive the odd one only if it is a process of its
// own.
void sweep_ends(const std::string& which, const std::string& how) {
  if (!ranks_are_processes())
    GTEST_SKIP() << "ranks are threads; set FAULTS_LAUNCHER";
  sweep(which, {how, "", {"failed: "}});
}
TEST_P(SweepTest, Kill) { sweep_ends(GetParam(), "kill"); }
TEST_P(SweepTest, Exit) { sweep_ends(GetParam(), "exit"); }

INSTANTIATE_TEST_SUITE_P(Steps, SweepTest,
                         ::testing::Values("step", "step3", "step3-buckets"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name)
                             if (c == '-') c = '_';
                           return name;
                         });

}  // namespace
}  // namespace dtensor::testing
