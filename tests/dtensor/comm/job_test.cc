// SPDX-License-Identifier: Apache-2.0
// The agreements of a job whose other processes do not answer; see
// dtensor/comm/job.h. Whole jobs are in tests/examples/tcp_train_test.cc.
#include "dtensor/comm/job.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <string_view>

namespace dtensor {
namespace {

// A process of a job of 3. The others say nothing; some of them are lost.
class Alone : public ProcessJob {
 public:
  explicit Alone(int process) : ProcessJob(process, 3) {}
  std::unique_ptr<PendingMessages> pending_messages() override { return {}; }
  void abort(int) noexcept override {}
  std::string launcher(int64_t) const override { return "none"; }
  void tell(int64_t, int, std::string_view) override {}
  bool lost(int process) override { return lost_.contains(process); }
  int ended_with() override { return ended_with_; }

  std::set<int> lost_;
  int ended_with_ = 0;

 protected:
  void listen() override {}
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
              "[run] process 0 has ended before the others (it was killed, or "
              "crashed)");
    EXPECT_EQ(job.is_main_process(), with_1);
  }
}

}  // namespace
}  // namespace dtensor
