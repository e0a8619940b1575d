// How a process ends when the others do not answer; see host_backend.h.
// Calls that cross processes are in message_passing_test.cc.
#include "dtensor/comm/host_backend.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace dtensor {
namespace {

// Process 1 of 2. Process 0 is alive, but has said only this and says no more.
class Silent : public Transport {
 public:
  explicit Silent(std::deque<Told> told) : told_(std::move(told)) {}
  int process() const override { return 1; }
  int processes() const override { return 2; }
  std::unique_ptr<PendingMessages> pending_messages() override { return {}; }
  void tell(int, std::string_view) override {}
  std::optional<Told> told() override {
    const std::lock_guard lock(mutex_);
    if (told_.empty()) return {};
    Told first = std::move(told_.front());
    told_.pop_front();
    return first;
  }
  void close() override {}
  void abort(int code) noexcept override {
    std::fprintf(stderr, "aborted with %d: ", code);
  }

 private:
  std::mutex mutex_;
  std::deque<Told> told_;
};

// Rank 1 ends like this, after rank 0 has said `told`.
void conclude(std::deque<Transport::Told> told,
              const std::optional<Backend::Failure>& here) {
  alarm(20);  // instead of waiting forever
  HostBackend(2, 1, std::make_unique<Silent>(std::move(told))).conclude(here);
}

TEST(HostBackendTest, AFailedProcessDoesNotWaitForeverForTheOthers) {
  EXPECT_EXIT(
      conclude({}, Backend::Failure{1, true, "[test] of its own"}),
      ::testing::ExitedWithCode(1),
      R"(\[test\] of its own \(some ranks do not answer; the job ends)");
}

TEST(HostBackendTest, TheReasonIsThatOfTheLaneThatFailed) {
  for (const char* lane : {"0", "1"})
    EXPECT_EXIT(
        conclude({{0, std::string("failed 0 ") + lane + " 0 0 for a reason"}},
                 {}),
        ::testing::ExitedWithCode(1),
        R"(\[run\] rank 0 failed: for a reason \(some ranks do not answer)")
        << lane;
}

}  // namespace
}  // namespace dtensor
