// SPDX-License-Identifier: Apache-2.0
// Ranks that are waited for in vain: RunOptions::timeout.
#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "dtensor/comm/agreement.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"
#include "dtensor/runtime.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using std::chrono::milliseconds;
using testing::error_of;
using Clock = std::chrono::steady_clock;

void barrier(Communicator& c, std::string_view op = "") {
  c.barrier({StepKind::kBarrier, op, 1});
}
Communicator& members(Runtime& rt, const std::vector<int64_t>& ranks) {
  return rt.context().communicator(ranks);
}

// Returns what run() throws. Checks that all ranks throw the same.
std::string error_of_all(int64_t world, milliseconds timeout,
                         const std::function<void(Runtime&)>& fn) {
  RunOptions options;
  options.world = world;
  options.timeout = timeout;
  std::mutex mutex;
  std::set<std::string> texts;
  int64_t threw = 0;
  const std::string thrown = error_of([&] {
    run(options, [&](Runtime& rt) {
      try {
        fn(rt);
      } catch (const Error& e) {
        std::lock_guard lock(mutex);
        texts.insert(e.what());
        ++threw;
        throw;
      }
    });
  });
  if (thrown != "no error") {
    EXPECT_EQ(threw, world);
    EXPECT_EQ(texts, std::set<std::string>{thrown});
  }
  return thrown;
}

// Rank 3 comes to the second barrier after the timeout.
TEST(TimeoutTest, ARankThatIsLate) {
  const auto start = Clock::now();
  Clock::time_point told;
  EXPECT_EQ(
      error_of_all(4, milliseconds(300),
                   [&](Runtime& rt) {
                     Communicator& all = members(rt, {0, 1, 2, 3});
                     barrier(all, "first");
                     Communicator& pair = members(
                         rt, rt.rank() < 2 ? std::vector<int64_t>{0, 1}
                                           : std::vector<int64_t>{2, 3});
                     if (rt.rank() > 1) barrier(pair, "pair");
                     if (rt.rank() == 3)
                       std::this_thread::sleep_for(milliseconds(900));
                     try {
                       barrier(all, "second");
                     } catch (...) {
                       if (rt.rank() == 0) told = Clock::now();
                       throw;
                     }
                   }),
      "[barrier] ranks 0,1,2 waited for 0.3 s in barrier #2 for second of "
      "ranks 0,1,2,3, and these did not come: rank 3 (its last collective was "
      "barrier #1 for pair of ranks 2,3); find out what delays them, or let "
      "the others wait longer with --timeout SECONDS (RunOptions::timeout)");
  EXPECT_LT(told - start, milliseconds(800));
  EXPECT_GE(told - start, milliseconds(300));
}

TEST(TimeoutTest, RanksThatWaitElsewhereOrHaveCalledNothing) {
  const std::string text = error_of_all(3, milliseconds(700), [&](Runtime& rt) {
    // Rank 2 comes, but only after the timeout.
    if (rt.rank() == 2) std::this_thread::sleep_for(milliseconds(1500));
    if (rt.rank() == 1) std::this_thread::sleep_for(milliseconds(300));
    barrier(members(rt, rt.rank() == 0 ? std::vector<int64_t>{0, 1, 2}
                                       : std::vector<int64_t>{1, 2}),
            "x");
  });
  EXPECT_EQ(
      text,
      "[barrier] rank 0 waited for 0.7 s in barrier #1 for x of ranks 0,1,2, "
      "and these did not come: rank 1 (it waits in barrier #1 for x of ranks "
      "1,2), rank 2 (it has called none); find out what delays them, or let "
      "the others wait longer with --timeout SECONDS (RunOptions::timeout)");
}

// The timeout also holds for the ranks' second threads, which move tensors.
TEST(TimeoutTest, ARankThatDoesNotRedistribute) {
  const std::string text = error_of_all(2, milliseconds(300), [&](Runtime& rt) {
    const DistTensor x = DistTensor::from_global(
        Tensor::full({4}, DType::kF32, 1), rt.mesh(), "S0");
    barrier(members(rt, {0, 1}), "ahead");
    if (rt.rank() == 1) std::this_thread::sleep_for(milliseconds(800));
    x.redistribute_async("R").local();
  });
  EXPECT_EQ(text,
            "[all-gather] rank 0 waited for 0.3 s in all-gather #1 for "
            "redistribute (redistribute_async) of ranks 0,1, and these did not "
            "come: rank 1 (its last collective was barrier #1 for ahead of "
            "ranks 0,1); find out what delays them, or let the others wait "
            "longer with --timeout SECONDS (RunOptions::timeout)");
}

TEST(TimeoutTest, WithoutOneNobodyIsLate) {
  for (const milliseconds timeout : {milliseconds(0), milliseconds(60000)})
    EXPECT_EQ(error_of_all(2, timeout,
                           [&](Runtime& rt) {
                             if (rt.rank() == 1)
                               std::this_thread::sleep_for(milliseconds(500));
                             barrier(members(rt, {0, 1}));
                           }),
              "no error");
  RunOptions negative;
  negative.timeout = milliseconds(-5);
  EXPECT_EQ(
      error_of([&] { run(negative, [](Runtime&) {}); }),
      "[run] the timeout is -5 ms; write 0 for no limit, or a positive number");
}

TEST(TimeoutTest, ManyThatDoNotComeAreNotAllNamed) {
  std::vector<int64_t> ranks, arrived{0};
  std::vector<Missing> missing;
  for (int64_t r = 0; r < 40; ++r) ranks.push_back(r);
  for (int64_t r = 1; r < 40; ++r) missing.push_back({r, ""});
  const std::string text =
      not_all_came(call_to_string(StepKind::kAllReduce, 3, ""), ranks, arrived,
                   missing, milliseconds(1500));
  EXPECT_EQ(text.find("rank 0 waited for 1.5 s in all-reduce #3 of ranks 0,1,"),
            0u)
      << text;
  EXPECT_NE(text.find("rank 16 (it has called none), ... (39); find out"),
            text.npos)
      << text;
}

}  // namespace
}  // namespace dtensor
