// SPDX-License-Identifier: Apache-2.0
#include "dtensor/runtime.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/allocator.h"
#include "dtensor/comm/backend.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/tensor.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;

Communicator& group(Runtime& rt, const Mesh& mesh, AxisMask axes) {
  return rt.context().communicator(mesh, axes);
}
Communicator& everybody(Runtime& rt) {
  Mesh mesh = rt.mesh();
  return group(rt, mesh, mesh.all_axes());
}
void barrier(Communicator& c, std::string_view op = "") {
  c.barrier({StepKind::kBarrier, op, 1});
}
void all_reduce(Communicator& c, std::string_view op = "matmul") {
  float x[2] = {1, 2};
  c.all_reduce({StepKind::kAllReduce, op, 1}, {}, ReduceOp::kSum, DType::kF32,
               x, 2);
}

// Wraps fn so that the text of each rank's error is kept.
struct Texts {
  explicit Texts(int64_t world) : of(static_cast<size_t>(world)) {}
  template <class Fn>
  auto keep(Fn fn) {
    return [this, fn](Runtime& rt) {
      try {
        fn(rt);
      } catch (const Error& e) {
        of[static_cast<size_t>(rt.rank())] = e.what();
        throw;
      }
    };
  }
  std::vector<std::string> of;
};

TEST(RunTest, EveryRankRuns) {
  for (int64_t world : {1, 2, 5}) {
    std::mutex mutex;
    std::set<int64_t> ranks;
    std::set<std::thread::id> threads;
    std::set<Allocator*> allocators;
    run(world, [&](Runtime& rt) {
      std::lock_guard lock(mutex);
      ranks.insert(rt.rank());
      threads.insert(std::this_thread::get_id());
      allocators.insert(rt.context().allocator.get());
      EXPECT_EQ(rt.world_size(), world);
      EXPECT_FALSE(rt.dry_run());
      EXPECT_EQ(&RankContext::current(), &rt.context());
      EXPECT_EQ(rt.context().runtime, &rt);
    });
    EXPECT_EQ(static_cast<int64_t>(ranks.size()), world);
    EXPECT_EQ(*ranks.rbegin(), world - 1);
  }
  EXPECT_EQ(RankContext::current_or_null(), nullptr);
  EXPECT_EQ(error_of([] { RankContext::current(); }),
            "[run] this thread is not a rank; call this inside run(), or pass "
            "the rank's context on with RankContext::set_current");
}

TEST(RunTest, Meshes) {
  RunOptions options;
  options.world = 4;
  options.mesh = "dp=2,tp=2";
  run(options, [](Runtime& rt) {
    EXPECT_EQ(rt.mesh().to_string(), "dp=2,tp=2");
    Mesh m = rt.mesh({{"x", 3}});
    EXPECT_EQ(m.num_ranks(), 3);
    const Coord& at = rt.context().coordinate(rt.mesh());
    EXPECT_EQ(at[0], rt.rank() / 2);
    EXPECT_EQ(at[1], rt.rank() % 2);
    EXPECT_EQ(&at, &rt.context().coordinate(rt.mesh()));
    EXPECT_EQ(error_of([&] {
                rt.mesh({{"x", 5}});
              }),
              "[mesh] x=5 has 5 ranks, but the run has 4; start more ranks, or "
              "make an axis smaller");
  });
  run(3, [](Runtime& rt) { EXPECT_EQ(rt.mesh().to_string(), "ranks=3"); });
  options.mesh = "dp=3,tp=2";
  EXPECT_EQ(error_of([&] { run(options, [](Runtime& rt) { rt.mesh(); }); }),
            "[mesh] mesh dp=3,tp=2 of the run's options has 6 ranks, but the "
            "run has 4; start more ranks, or make an axis smaller");
  options.mesh = "dp=x";
  EXPECT_THROW(run(options, [](Runtime&) { FAIL(); }), Error);
  EXPECT_THROW(run(0, [](Runtime&) { FAIL(); }), Error);
}

TEST(RunTest, DryRunIsTheLastRank) {
  RunOptions options;
  options.world = 1 << 20;
  options.mesh = "dp=1024,tp=1024";
  options.dry_run = true;
  int calls = 0;
  run(options, [&](Runtime& rt) {
    ++calls;
    EXPECT_TRUE(rt.dry_run());
    EXPECT_EQ(rt.rank(), (1 << 20) - 1);
    EXPECT_EQ(rt.world_size(), 1 << 20);
    Mesh mesh = rt.mesh();
    EXPECT_EQ(rt.context().coordinate(mesh)[0], 1023);
    Communicator& c = group(rt, mesh, 0b01);
    EXPECT_EQ(c.rank(), 1023);
    EXPECT_EQ(c.size(), 1024);
    all_reduce(c);
    barrier(c);
    Tensor t = Tensor::empty({1 << 20, 1 << 10}, DType::kF32);
    EXPECT_EQ(t.data(), nullptr);
    EXPECT_EQ(rt.context().allocator->stats().current_bytes, int64_t{1} << 32);
  });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(error_of([&] { run(options, [](Runtime&) { fail("x", "no"); }); }),
            "[x] no");
}

TEST(RunTest, TensorsMayOutliveTheRun) {
  Tensor kept;
  run(2, [&](Runtime& rt) {
    Tensor t = Tensor::full({100}, DType::kF32, 3);
    if (rt.rank() == 1) kept = t;
    barrier(everybody(rt));
  });
  EXPECT_EQ(kept.at(99), 3);
}

TEST(RunTest, RunsInsideARun) {
  run(2, [](Runtime& outer) {
    std::atomic<int> ranks{0};
    run(3, [&](Runtime& inner) {
      ++ranks;
      barrier(everybody(inner));
      EXPECT_EQ(RankContext::current().world_size, 3);
    });
    EXPECT_EQ(ranks, 3);
    EXPECT_EQ(&RankContext::current(), &outer.context());
    barrier(everybody(outer));
  });
}

// --- Failure ----------------------------------------------------------------

TEST(ReportTest, SaysWhoWasWaitedForAndHowLong) {
  for (const bool fails : {false, true}) {
    int reports = 0;
    RunOptions options;
    options.world = 3;
    options.report = [&](const RunReport& r) {
      ++reports;
      EXPECT_GE(r.seconds, 0.4);
      ASSERT_EQ(r.waited_for.size(), 3u);
      // (Under load the others begin to wait late.)
      EXPECT_GE(r.waited_for[2], 0.2);
      EXPECT_LE(r.waited_for[2], r.seconds);
      EXPECT_LT(r.waited_for[0] + r.waited_for[1], r.waited_for[2]);
      EXPECT_EQ(straggler_text(r), "");
    };
    error_of([&] {
      run(options, [&](Runtime& rt) {
        Communicator& c = everybody(rt);
        for (int i = 0; i < 4; ++i) {
          if (rt.rank() == 2)
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
          all_reduce(c);
        }
        if (fails && rt.rank() == 1) fail("x", "y");
      });
    });
    EXPECT_EQ(reports, 1);
  }
  EXPECT_EQ(straggler_text({12, {0.5, 1.5, 1, 4.14}}),
            "rank 3 was waited for 4.1 s of 12.0 s (34 %), rank 1 for 1.5 s "
            "(12 %)");
  EXPECT_EQ(straggler_text({100, std::vector<double>(12, 3)}),
            "rank 0 was waited for 3.0 s of 100.0 s (3 %), rank 1 for 3.0 s (3 "
            "%), rank 2 for 3.0 s (3 %), rank 3 for 3.0 s (3 %), rank 4 for "
            "3.0 s (3 %), rank 5 for 3.0 s (3 %), rank 6 for 3.0 s (3 %), rank "
            "7 for 3.0 s (3 %), ... (12)");
}

// Several groups wait for the same rank at the same time: that is one time.
TEST(ReportTest, NobodyIsWaitedForLongerThanTheRun) {
  RunOptions options;
  options.world = 4;
  options.report = [](const RunReport& r) {
    EXPECT_GE(r.waited_for[3], 0.2);
    EXPECT_LE(r.waited_for[3], r.seconds);
  };
  run(options, [](Runtime& rt) {
    if (rt.rank() == 3)
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    for (int64_t other = 0; other < 3; ++other)
      if (rt.rank() == 3 || rt.rank() == other)
        rt.context()
            .communicator({other, 3})
            .barrier({StepKind::kBarrier, "late", 1});
  });
}

TEST(FailureTest, WaitingRanksHearWhoFailed) {
  for (int64_t world : {2, 3, 8}) {
    Texts texts(world);
    const auto start = std::chrono::steady_clock::now();
    const std::string thrown = error_of([&] {
      run(world, texts.keep([](Runtime& rt) {
        Communicator& c = everybody(rt);
        barrier(c, "setup");
        if (rt.rank() == 1) fail("matmul", "k is 3 and 4");
        all_reduce(c);
      }));
    });
    EXPECT_LT(std::chrono::steady_clock::now() - start,
              std::chrono::seconds(1));
    EXPECT_EQ(thrown, "[matmul] k is 3 and 4");
    for (int64_t r = 0; r < world; ++r)
      EXPECT_EQ(texts.of[static_cast<size_t>(r)],
                r == 1 ? "[matmul] k is 3 and 4"
                       : "[all-reduce] rank 1 failed: [matmul] k is 3 and 4 "
                         "(its last collective was barrier #1 for setup)");
  }
}

// A failure also reaches ranks that wait for a rank that waits for the failed
// one, and ranks that come long after it.
TEST(FailureTest, ReachesOtherGroups) {
  Texts texts(4);
  const std::string thrown = error_of([&] {
    run(4, texts.keep([](Runtime& rt) {
      Mesh mesh = rt.mesh({{"a", 2}, {"b", 2}});
      if (rt.rank() == 3) fail("load", "no file");
      if (rt.rank() == 2)
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
      // 1 waits for 3, and 0 for 1.
      if (rt.rank() == 1) all_reduce(group(rt, mesh, 0b01));
      all_reduce(group(rt, mesh, 0b10));
    }));
  });
  EXPECT_EQ(thrown, "[load] no file");
  for (size_t r = 0; r < 3; ++r)
    EXPECT_EQ(texts.of[r],
              "[all-reduce] rank 3 failed: [load] no file (it had called no "
              "collective)");
}

// The exception that a user catches has the rank that failed, and why.
TEST(FailureTest, APeerHasANameAndACause) {
  std::atomic<int> caught{0};
  EXPECT_EQ(error_of([&] {
              run(3, [&](Runtime& rt) {
                if (rt.rank() == 2) fail("load", "no file");
                try {
                  all_reduce(everybody(rt));
                } catch (const PeerFailed& e) {
                  EXPECT_EQ(e.rank(), 2);
                  EXPECT_EQ(e.cause(),
                            "[load] no file (it had called no collective)");
                  EXPECT_EQ(std::string(e.what()),
                            "[all-reduce] rank 2 failed: " + e.cause());
                  ++caught;
                }
              });
            }),
            "[load] no file");
  EXPECT_EQ(caught, 2);
  run(2, [&](Runtime& rt) {
    if (rt.rank() == 0) return;
    try {
      all_reduce(everybody(rt));
      ADD_FAILURE();
    } catch (const PeerLeft& e) {
      EXPECT_EQ(e.rank(), 0);
      EXPECT_EQ(std::string(e.what()), "[all-reduce] rank 0 " + e.cause());
    }
  });
}

TEST(FailureTest, TheLowestRankThatFailedByItself) {
  for (int i = 0; i < 20; ++i) {
    std::atomic<int> come{0};
    const std::string thrown = error_of([&] {
      run(4, [&](Runtime& rt) {
        if (rt.rank() == 0) all_reduce(everybody(rt));
        ++come;
        while (come < 3) std::this_thread::yield();
        fail("x", "rank {}", rt.rank());
      });
    });
    EXPECT_EQ(thrown, "[x] rank 1");
  }
}

TEST(FailureTest, OtherExceptionsBecomeErrors) {
  const std::string no_memory = error_of([] {
    run(2, [](Runtime& rt) {
      if (rt.rank() == 1) throw std::bad_alloc();
      all_reduce(everybody(rt));
    });
  });
  EXPECT_EQ(no_memory.find("[allocate] there is no more memory for rank 1: the "
                           "process uses "),
            0u)
      << no_memory;
  EXPECT_EQ(error_of([] { run(1, [](Runtime&) { throw 3; }); }),
            "[run] rank 0 threw something that is not a std::exception; throw "
            "one, so that its text can be shown");
  struct Mine : Error {
    using Error::Error;
  };
  EXPECT_THROW(run(1, [](Runtime&) { throw Mine("[x] kept"); }), Mine);
}

TEST(FailureTest, ARankThatLeavesEarly) {
  for (int64_t world : {2, 8}) {
    Texts texts(world);
    const std::string thrown = error_of([&] {
      run(world, texts.keep([](Runtime& rt) {
        Communicator& c = everybody(rt);
        for (int i = 0; i < 6; ++i) barrier(c);
        if (rt.rank() == 1) return;
        all_reduce(c);
      }));
    });
    if (world == 2) {
      EXPECT_EQ(thrown,
                "[all-reduce] rank 1 has left the program while rank 0 waits "
                "in all-reduce #7 for matmul; let every rank run the same "
                "operators");
    }
    EXPECT_NE(thrown.find("rank 1 has left the program while rank"),
              std::string::npos)
        << thrown;
    EXPECT_EQ(texts.of[1], "");
    for (int64_t r = 0; r < world; ++r)
      if (r != 1) {
        const std::string& text = texts.of[static_cast<size_t>(r)];
        EXPECT_NE(text.find("rank 1 has left the program"), std::string::npos)
            << text;
      }
  }
}

// Rank 1 leaves before rank 0 makes their group.
TEST(FailureTest, ARankThatLeftLongAgo) {
  EXPECT_EQ(error_of([] {
              run(2, [](Runtime& rt) {
                if (rt.rank() == 1) return;
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
                all_reduce(everybody(rt));
              });
            }),
            "[all-reduce] rank 1 has left the program while rank 0 waits in "
            "all-reduce #1 for matmul; let every rank run the same operators");
}

// Leaving is no failure for those who do not wait for that rank.
TEST(FailureTest, OthersGoOn) {
  run(4, [](Runtime& rt) {
    Mesh mesh = rt.mesh({{"a", 2}, {"b", 2}});
    if (rt.rank() < 2) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    for (int i = 0; i < 50; ++i) all_reduce(group(rt, mesh, 0b10));
  });
}

TEST(FailureTest, AMismatchFailsEveryRankAlike) {
  Texts texts(3);
  const std::string thrown = error_of([&] {
    run(3, texts.keep([](Runtime& rt) {
      all_reduce(everybody(rt), rt.rank() == 2 ? "add" : "matmul");
    }));
  });
  for (const std::string& text : texts.of) EXPECT_EQ(text, thrown);
  EXPECT_NE(thrown.find("ranks 0 and 2 disagree"), std::string::npos) << thrown;
}

// Each waits in a group of its own for one that waits in another group: no
// call is wrong by itself.
TEST(FailureTest, RanksThatWaitInACircle) {
  for (int64_t world : {3, 4}) {
    Texts texts(world);
    const std::string thrown = error_of([&] {
      run(world, texts.keep([&](Runtime& rt) {
        if (rt.rank() == 3) return;
        // Rank 0 starts with the pair (0,1), rank 1 with (1,2), rank 2 with
        // (2,0).
        const int64_t a = rt.rank(), b = (a + 1) % 3;
        Mesh pair({{"x", 2}}, {a, b});
        all_reduce(group(rt, pair, 1), "");
      }));
    });
    const std::string who = world == 3 ? "every rank waits for another one"
                                       : "ranks 0,1,2 wait for each other";
    EXPECT_EQ(thrown,
              "[all-reduce] " + who +
                  ": rank 0 in all-reduce #1 of ranks 0,1; rank 1 in "
                  "all-reduce #1 of ranks 1,2; rank 2 in all-reduce #1 of "
                  "ranks 2,0; let all ranks run the same operators in the same "
                  "order");
    for (size_t r = 0; r < 3; ++r) EXPECT_EQ(texts.of[r], thrown);
  }
}

// A rank that computes for long is waited for, however many wait.
TEST(FailureTest, SlowIsNotDead) {
  run(3, [](Runtime& rt) {
    Communicator& c = everybody(rt);
    for (int i = 0; i < 2; ++i) {
      if (rt.rank() == i)
        std::this_thread::sleep_for(std::chrono::milliseconds(350));
      all_reduce(c);
    }
  });
}

// Whatever happens first, and whichever ranks fail, leave or catch: nobody
// hangs, and nobody reads memory that is gone.
TEST(FailureTest, ManyTimes) {
  for (int i = 0; i < 60; ++i) {
    const std::string thrown = error_of([&] {
      run(4, [&](Runtime& rt) {
        Mesh mesh = rt.mesh({{"a", 2}, {"b", 2}});
        for (int j = 0; j < 40; ++j) {
          std::vector<float> x(1000, 1.f);
          if (rt.rank() == i % 4 && j == i % 37) {
            if (i % 3 == 0) return;
            fail("x", "rank {}", rt.rank());
          }
          const AxisMask axes = j % 2 ? 0b11 : i % 2 ? 0b01 : 0b10;
          try {
            Communicator& c = group(rt, mesh, axes);
            c.all_reduce({StepKind::kAllReduce, "", 1}, {}, ReduceOp::kSum,
                         DType::kF32, x.data(), 1000);
            EXPECT_EQ(x[999], static_cast<float>(c.size()));
          } catch (const Error&) {
            if (rt.rank() % 2) throw;  // the others try on
          }
        }
      });
    });
    if (i % 3 != 0) {
      EXPECT_EQ(thrown, fmt::format("[x] rank {}", i % 4));
    }
  }
}

}  // namespace
}  // namespace dtensor
