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

TEST(LastCallTest, TextsOfAnyLength) {
  const Group group({0}, {0}, 0, false);
  LastCall last;
  EXPECT_EQ(last.get().group, nullptr);
  std::string op;
  for (size_t n = 0; n <= 70; ++n, op += static_cast<char>('0' + n)) {
    last.set(group, StepKind::kAllReduce, n, op);
    const LastCall::Value v = last.get();
    EXPECT_EQ(v.group, &group);
    EXPECT_EQ(v.kind, StepKind::kAllReduce);
    EXPECT_EQ(v.sequence, n);
    EXPECT_EQ(v.op, op.substr(0, 64));
  }
}

// Read while it is written: of one call, all of it.
TEST(LastCallTest, IsNeverOfTwoCalls) {
  const Group group({0}, {0}, 0, false);
  LastCall last;
  last.set(group, StepKind::kBarrier, 0, "");
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint64_t i = 1; !stop; ++i) {
      const size_t n = i % 40;
      last.set(group, n % 2 ? StepKind::kBarrier : StepKind::kAllReduce, n,
               std::string(n, static_cast<char>('A' + n)));
    }
  });
  for (int i = 0; i < 200000 && !::testing::Test::HasFailure(); ++i) {
    const LastCall::Value v = last.get();
    if (v.sequence == 0) continue;
    const size_t n = v.sequence;
    EXPECT_EQ(v.op, std::string(n, static_cast<char>('A' + n)));
    EXPECT_EQ(v.kind, n % 2 ? StepKind::kBarrier : StepKind::kAllReduce);
  }
  stop = true;
  writer.join();
}

// The third rank computes, and could come at any time.
TEST(MembershipTest, ACircleOfSomeRanksIsFound) {
  Membership run(3);
  Group &all = run.group({0, 1, 2}, 0), &pair = run.group({1, 0}, 0);
  const auto error = [&](Group& group, size_t place) {
    return testing::error_of([&] {
      run.note(group, place, kBarrier, 1);
      run.meet(group, place);
    });
  };
  std::string other;
  std::thread rank_1([&] { other = error(pair, 0); });
  const std::string own = error(all, 0);
  rank_1.join();
  EXPECT_EQ(own,
            "[barrier] ranks 0,1 wait for each other: rank 0 in barrier #1 for "
            "test of ranks 0,1,2; rank 1 in barrier #1 for test of ranks 1,0; "
            "let all ranks run the same operators in the same order");
  EXPECT_EQ(other, own);
}

// A process that was stopped has not waited meanwhile. A rank that waited for
// others of its own process once counted that time, too.
TEST(TimeWaitedTest, StoppedTimeDoesNotCount) {
  using std::chrono::milliseconds;
  const TimeWaited::Clock::time_point start;
  TimeWaited waited(start, milliseconds(100));
  EXPECT_EQ(waited.look(start + milliseconds(50)), milliseconds(150));
  EXPECT_EQ(waited.look(start + milliseconds(350)), milliseconds(450));
  EXPECT_EQ(waited.look(start + milliseconds(60'000)), milliseconds(750));
  EXPECT_EQ(waited.look(start + milliseconds(60'001)), milliseconds(751));
}

// More ranks than cores, each late in turn for longer than a wait is looked
// at: the others are seen waiting in rounds that end meanwhile.
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
