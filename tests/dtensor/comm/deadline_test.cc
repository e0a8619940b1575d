// SPDX-License-Identifier: Apache-2.0
// The clocks of waits for other processes, and the sentences at their end.
#include "dtensor/comm/deadline.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

#include "dtensor/interrupt.h"

namespace dtensor {
namespace {

using namespace std::chrono_literals;

TEST(Patience, ComesFromTheEnvironmentAndFromTheRun) {
  unsetenv("DTENSOR_JOIN_TIMEOUT");
  EXPECT_EQ(join_patience().time, 120s);
  setenv("DTENSOR_JOIN_TIMEOUT", "0.25", 1);
  EXPECT_EQ(join_patience().time, 250ms);
  EXPECT_EQ(no_answer_text("process 1", "compare their flags", join_patience()),
            "[run] nothing came from process 1 for 0.25 s, while the processes "
            "compare their flags; find out why, or let the others wait longer "
            "with DTENSOR_JOIN_TIMEOUT=SECONDS");
  EXPECT_EQ(run_patience(3s).time, 3s);
  EXPECT_EQ(run_patience(3s).setting,
            "--timeout SECONDS (RunOptions::timeout)");
}

TEST(Patience, NamesProcesses) {
  EXPECT_EQ(processes_to_string({}), "the other processes");
  EXPECT_EQ(processes_to_string({3}), "process 3");
  EXPECT_EQ(processes_to_string({1, 2}), "processes 1,2");
  EXPECT_EQ(processes_to_string(std::vector<int>(17, 7)),
            "processes 7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,... (17)");
}

class EndsInTimeDeathTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  }
};

TEST_F(EndsInTimeDeathTest, EndsACallThatDoesNotReturn) {
  EXPECT_EXIT(
      {
        const EndsInTime clock("process 1", "begin a run", run_patience(50ms));
        for (;;) std::this_thread::sleep_for(1s);
      },
      ::testing::ExitedWithCode(1),
      "deadline_test: \\[run\\] nothing came from process 1 for 0.05 s, while "
      "the processes begin a run; ");
}

TEST_F(EndsInTimeDeathTest, EndsACallAfterASignal) {
  EXPECT_EXIT(
      {
        const StopOnSignals signals;
        const EndsInTime clock("process 1", "begin a run", run_patience(0s));
        raise(SIGTERM);
        for (;;) std::this_thread::sleep_for(1s);
      },
      ::testing::ExitedWithCode(143),
      "\\[run\\] interrupted by SIGTERM while this process waited for process "
      "1, as the processes begin a run");
}

// EndsInTime does nothing before its limit, without a limit, or after the call.
TEST_F(EndsInTimeDeathTest, LetsTheOthersReturn) {
  EXPECT_EXIT(
      {
        for (const auto limit : {0ms, 60'000ms, 100ms}) {
          std::optional<EndsInTime> clock;
          clock.emplace("process 1", "begin a run", run_patience(limit));
          std::this_thread::sleep_for(20ms);
        }
        std::this_thread::sleep_for(300ms);
        std::_Exit(7);
      },
      ::testing::ExitedWithCode(7), "^$");
}

TEST_F(EndsInTimeDeathTest, OneSentenceIsPrinted) {
  EXPECT_EXIT(
      {
        std::thread other([] {
          end_process(3, "one", [] {
            for (;;) std::this_thread::sleep_for(1ms);
          });
        });
        std::this_thread::sleep_for(300ms);
        std::thread([] {
          std::this_thread::sleep_for(300ms);
          std::_Exit(9);
        }).detach();
        end_process(4, "two");
      },
      ::testing::ExitedWithCode(9), "deadline_test: one\n$");
}

}  // namespace
}  // namespace dtensor
