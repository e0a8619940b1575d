// SPDX-License-Identifier: Apache-2.0
// The agreements of a job whose other processes do not answer; see
// dtensor/comm/job.h. Whole jobs are in tests/programs/tcp_train_test.cc.
#include "dtensor/comm/job.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/interrupt.h"
#include "dtensor/io/checksum.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

// A process of a job of 3. The others say nothing; some of them are lost.
class Alone : public ProcessJob {
 public:
  explicit Alone(int process) : ProcessJob(process, 3) {}
  std::unique_ptr<PendingMessages> pending_messages() override { return {}; }
  void abort(int) noexcept override {}
  std::string launcher(int64_t) const override { return "none"; }
  bool lost(int process) override { return lost_.contains(process); }
  int ended_with() override { return ended_with_; }

  std::set<int> lost_;
  int ended_with_ = 0;
  std::vector<std::pair<int64_t, Told>> come_;  // from others, as sent
  std::string sent_;                            // the last text of this process

 protected:
  void send(int64_t, int, std::string text) override {
    sent_ = std::move(text);
  }
  void listen() override {
    for (auto& [matter, told] : std::exchange(come_, {}))
      deliver(matter, std::move(told));
  }
};

// The process that ends the job has printed the reason.
TEST(JobTest, AProcessThatIsEndedByAnotherPrintsNothing) {
  for (int process : {0, 2}) {
    Alone job(process);
    job.ended_with_ = 7;
    const JobVerdict all = job.agree({});
    EXPECT_EQ(all.code, 7);
    EXPECT_FALSE(job.is_main_process()) << process;
  }
}

TEST(JobTest, TheLowestProcessThatRunsPrintsThatProcess0HasEnded) {
  for (const bool with_1 : {true, false}) {
    Alone job(2);
    job.lost_ = with_1 ? std::set{0, 1} : std::set{0};
    const JobVerdict all = job.agree({});
    EXPECT_EQ(all.code, 1);
    EXPECT_EQ(all.text,
              "[run] process 0 has ended before the others; look for the error "
              "in its output, or for a signal that killed it");
    EXPECT_EQ(job.is_main_process(), with_1);
  }
}

// The others neither answer nor end.
TEST(JobTest, ProcessesThatSayNothingAreGivenUp) {
  const auto text = [](const char* whom, const char* phase) {
    return std::string("[run] nothing came from ") + whom +
           " for 0.05 s, while the processes " + phase +
           "; find out why, or let the others wait longer with --timeout "
           "SECONDS "
           "(RunOptions::timeout)";
  };
  for (int process : {0, 2}) {
    const char* const whom = process == 0 ? "processes 1,2" : "process 0";
    Alone job(process);
    job.set_patience(run_patience(std::chrono::milliseconds(50)));
    const JobVerdict all = job.agree({});
    EXPECT_EQ(all.code, 1);
    EXPECT_EQ(all.text, text(whom, "agree how they fare"));
    EXPECT_TRUE(job.is_main_process());
    // It does not wait again, and its own failure comes first.
    job.set_patience(run_patience(std::chrono::minutes(10)));
    EXPECT_EQ(job.agree({3, "no disk"}).text, "no disk");
    EXPECT_TRUE(job.is_main_process());

    Alone other(process);
    other.set_patience(run_patience(std::chrono::milliseconds(50)));
    try {
      other.compare(JobFacts::of_process());
      ADD_FAILURE();
    } catch (const NoAnswer& e) {
      EXPECT_EQ(e.what(), text(process == 0 ? "process 1" : "process 0",
                               "compare their flags"));
    }
  }
}

// In a process of its own, since interrupted() stays set.
TEST(JobTest, ASignalEndsAWaitWithASentence) {
  for (int process : {0, 2})
    EXPECT_EXIT(
        {
          const StopOnSignals signals;
          raise(SIGTERM);
          Alone job(process);
          const JobVerdict all = job.agree({});
          std::fputs(all.text.c_str(), stderr);
          std::_Exit(all.code);
        },
        ::testing::ExitedWithCode(143),
        process == 0 ? "interrupted by SIGTERM while this process waited for "
                       "processes 1,2, as the processes agree how they fare"
                     : "interrupted by SIGTERM while this process waited for "
                       "process 0, as the processes agree how they fare");
}

// Each text that another process tells carries its checksum.
TEST(JobTest, ADamagedTextIsAnErrorOnce) {
  Alone job(2);
  job.come_ = {{7, {0, "no checksum at all"}}};
  EXPECT_EQ(testing::error_of([&] { job.told(7); })
                .find("[run] a control message of 10 bytes from process 0 to "
                      "process 2 is damaged: "),
            0u);
  EXPECT_FALSE(job.told(7));
  // A text that is shorter than a checksum has none.
  job.come_ = {{7, {0, "short"}}};
  EXPECT_NE(testing::error_of([&] {
              job.told(7);
            }).find("its checksum is missing, and that"),
            std::string::npos);
  // The text arrives about another matter than it was sent about.
  job.tell(7, 0, "text");
  job.come_ = {{8, {0, job.sent_}}};
  EXPECT_NE(testing::error_of([&] { job.told(8); }), "no error");
  job.come_ = {{7, {0, job.sent_}}};
  EXPECT_EQ(job.told(7)->text, "text");
  // A damaged text ends an agreement.
  job.come_ = {{-1, {0, job.sent_}}};
  const JobVerdict all = job.agree({});
  EXPECT_EQ(all.code, 1);
  EXPECT_NE(all.text.find("is damaged"), std::string::npos);
  EXPECT_TRUE(job.is_main_process());
}

}  // namespace
}  // namespace dtensor
