// SPDX-License-Identifier: Apache-2.0
// How a process ends when the others do not answer; see host_backend.h.
// Calls that cross processes are in message_passing_test.cc.
#include "dtensor/comm/host_backend.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/comm/pack.h"

namespace dtensor {
namespace {

// Process 1 of 2. Process 0 is alive, but has said only `told` and says no
// more.
class Silent : public ProcessJob {
 public:
  explicit Silent(const std::vector<std::string>& told) : ProcessJob(1, 2) {
    for (const std::string& text : told) tell(1, 0, text);
    is_made_ = true;
  }
  std::string launcher(int64_t) const override { return "none"; }
  std::unique_ptr<PendingMessages> pending_messages() override { return {}; }
  void abort(int code) noexcept override {
    std::fprintf(stderr, "aborted with %d: ", code);
  }

 private:
  // A text comes back as if process 0 had sent it, in the constructor.
  void send(int64_t matter, int, std::string text) override {
    if (!is_made_) return deliver(matter, {0, std::move(text)});
    if (matter == 2)
      std::fprintf(stderr, "told in run 2: %s\n",
                   text.c_str() + sizeof(uint64_t));
  }
  void listen() override {}

  bool is_made_ = false;
};

// Ends the run on rank 1 with the failure `here`, after process 0 has said
// `told`.
void conclude(const std::vector<std::string>& told,
              const std::optional<Backend::Failure>& here) {
  alarm(20);  // instead of waiting forever
  Silent job(told);
  HostBackend(2, 1, &job).conclude(here);
}

TEST(HostBackendTest, AFailedProcessDoesNotWaitForeverForTheOthers) {
  EXPECT_EXIT(
      conclude({}, Backend::Failure{1, true, "[test] of its own"}),
      ::testing::ExitedWithCode(1),
      R"(\[test\] of its own \(some ranks do not answer; the job ends)");
}

TEST(HostBackendTest, TheReasonIsThatOfTheLaneThatFailed) {
  for (int lane : {0, 1})
    EXPECT_EXIT(
        conclude({pack("failed", 0, lane, 0, false, "for a reason")}, {}),
        ::testing::ExitedWithCode(1),
        R"(\[run\] rank 0 failed: for a reason \(some ranks do not answer)")
        << lane;
}

// Whichever thread reads the message: the one that waits in conclude(), or the
// one that watches. The message may have been the verdict; process 0 is then in
// the next run, where it must not wait for this process until a deadline.
TEST(HostBackendTest, ADamagedMessageFailsTheRun) {
  const std::string whole = pack("failed", 0, 0, 0, false, "for a reason");
  for (const std::string& text :
       {std::string("no message"), whole.substr(0, whole.size() - 3),
        pack("failed", 0, "two", 0, false, "for a reason"), pack("left")})
    EXPECT_EXIT(
        conclude({text}, {}), ::testing::ExitedWithCode(1),
        R"(told in run 2: .*\[communicator\] a message from another process cannot be read: .*\(some ranks)")
        << text;
}

}  // namespace
}  // namespace dtensor
