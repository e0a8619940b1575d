// SPDX-License-Identifier: Apache-2.0
// redistribute_async(): moves that return before they are carried out.
#include "dtensor/async.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "dtensor/allocator.h"
#include "dtensor/dtensor.h"
#include "dtensor/gather.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/redistribute.h"
#include "dtensor/runtime.h"
#include "dtensor/scopes.h"
#include "tests/dtensor/device/recording_device.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;

using std::chrono::milliseconds;

Tensor counting(const Shape& shape, int64_t first = 0) {
  std::vector<int64_t> values(static_cast<size_t>(numel(shape)));
  std::iota(values.begin(), values.end(), first);
  return Tensor::from(shape, values.data());
}

DistTensor rows(const Mesh& mesh, int64_t first = 0) {
  return DistTensor::from_global(counting({4, 4}, first), mesh, "S0");
}

void expect_columns(const DistTensor& y, int64_t first = 0) {
  const Region r = y.region();
  ASSERT_EQ(y.local().shape(), (Shape{4, r[1][0].size()}));
  const std::vector<int64_t> t = y.local().to_integers();
  for (int64_t i = 0; i < std::ssize(t); ++i) {
    const int64_t n = r[1][0].size();
    EXPECT_EQ(t[static_cast<size_t>(i)],
              first + i / n * 4 + r[1][0].lo + i % n);
  }
}

// Each test runs on the CPU, and on a RecordingDevice, whose work runs later.
class AsyncTest : public ::testing::TestWithParam<bool> {
 protected:
  AsyncTest() {
    if (GetParam()) device_ = RecordingDevice::make();
  }
  RunOptions options_of(int64_t world) {
    RunOptions options;
    options.world = world;
    if (device_)
      options.device = [this](int64_t) -> Device& { return *device_; };
    return options;
  }
  void run(int64_t world, const std::function<void(Runtime&)>& fn) {
    dtensor::run(options_of(world), fn);
  }

  std::unique_ptr<RecordingDevice> device_;
};
INSTANTIATE_TEST_SUITE_P(Devices, AsyncTest, ::testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "later" : "at_once";
                         });

TEST_P(AsyncTest, ReturnsAtOnceAndCompletesOnFirstUse) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime& rt) {
    const DistTensor x = rows(mesh);
    if (rt.rank() == 1) std::this_thread::sleep_for(milliseconds(200));
    const auto start = std::chrono::steady_clock::now();
    const DistTensor y = x.redistribute_async("S1");
    EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(100));
    EXPECT_EQ(y.layout().to_string(mesh), "S1");
    expect_columns(y);
    // A second consumer shares the move, also while it is under way.
    const DistTensor z = x.redistribute_async("R");
    rt.context().record = true;
    EXPECT_EQ(x.redistribute("R").to_string(), z.to_string());
    EXPECT_EQ(rt.context().events.size(), 0u);
  });
}

// Ranks may mix redistribute() and redistribute_async() in different orders, if
// the calls of each have the same order on all ranks.
TEST_P(AsyncTest, NeverMixesWithTheRanksOwnCollectives) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime& rt) {
    for (int64_t i = 0; i < 50; ++i) {
      const DistTensor x = rows(mesh, i), w = rows(mesh, 100 + i);
      DistTensor y, z;
      if (rt.rank() == 0) {
        y = x.redistribute_async("S1");
        z = w.redistribute("S1");
      } else {
        z = w.redistribute("S1");
        y = x.redistribute_async("S1");
      }
      expect_columns(z, 100 + i);
      expect_columns(y, i);
    }
  });
}

TEST_P(AsyncTest, ManyAtOnceAndOneAfterTheOther) {
  const Mesh mesh = Mesh::parse("a=2,b=2");
  run(4, [&](Runtime&) {
    std::vector<DistTensor> results;
    for (int64_t i = 0; i < 20; ++i)
      results.push_back(
          DistTensor::from_global(counting({4, 4}, i), mesh, "S0,R")
              .redistribute_async("S1,S0")
              .redistribute_async("R,S1")
              .redistribute_async("S0,S1"));
    for (int64_t i = 19; i >= 0; --i) {
      const Tensor all = results[static_cast<size_t>(i)].full();
      for (int64_t k = 0; k < 16; ++k) EXPECT_EQ(all.integer_at(k), i + k);
    }
  });
}

// No thread of the host waits for the device, not even the one that carries out
// the moves.
TEST_P(AsyncTest, NobodyWaitsForTheDevice) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    for (int64_t i = 0; i < 20; ++i) {
      const DistTensor y = rows(mesh, i).redistribute_async("S1");
      const DistTensor z = rows(mesh, i).redistribute_async("R");
      // The sources are gone, and their memory is reused at once.
      const DistTensor other = rows(mesh, -1000 * i);
      expect_columns(y.redistribute_async("R").redistribute("S1"), i);
      expect_columns(z.redistribute("S1"), i);
    }
  });
  if (device_) {
    EXPECT_EQ(device_->synchronized(), 0);
  }
}

TEST_P(AsyncTest, ADroppedHandleIsNoHarm) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime& rt) {
    for (int64_t i = 0; i < 20; ++i) {
      // Source and result are gone before the other rank has even begun.
      if (rt.rank() == 1 && i % 5 == 0)
        std::this_thread::sleep_for(milliseconds(5));
      rows(mesh, i).redistribute_async("S1");
    }
    const Tensor all = rows(mesh).full();
    EXPECT_EQ(all.integer_at(15), 15);
  });
}

TEST_P(AsyncTest, AWriteToTheSourceWaits) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime& rt) {
    for (int how = 0; how < 3; ++how) {
      DistTensor x = rows(mesh);
      if (rt.rank() == 1) std::this_thread::sleep_for(milliseconds(50));
      DistTensor source = x;
      // The source may be the result of a move that is still under way.
      if (how == 2)
        source = DistTensor::from_global(counting({4, 4}), mesh, "S1")
                     .redistribute_async("S0");
      const DistTensor y = source.redistribute_async("S1");
      if (how == 1)
        source.local().slice(0, 0, 1).fill(-1);
      else
        source.assign(Tensor::full(source.local().shape(), DType::kI64, -1));
      expect_columns(y);
      EXPECT_EQ(source.local().at(0), -1);
      // A move of the old values is not reused.
      EXPECT_EQ(source.redistribute("S1").full().integer_at(0), -1);
    }
  });
}

// Moves a tensor to a layout in which rank 0 needs more memory than there is.
DistTensor too_large(const Mesh& mesh, bool async) {
  constexpr int64_t n = int64_t{1} << 46;
  const Layout mine{{Dim(n, Split::at({0}, {0, 1, n}, mesh))}, {}};
  const Layout theirs{{Dim(n, Split::at({0}, {0, n - 1, n}, mesh))}, {}};
  const int64_t rank = RankContext::current().world_rank;
  const DistTensor x = DistTensor::from_local(
      Tensor::full({1}, DType::kF32, 0).expand({rank == 0 ? 1 : n - 1}), mesh,
      mine, {n});
  return async ? x.redistribute_async(theirs) : x.redistribute(theirs);
}

TEST_P(AsyncTest, AFailureIsThrownOnFirstUseOnEveryRank) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime& rt) {
    const DistTensor y = too_large(mesh, true);
    const DistTensor after = y.redistribute_async("R");
    for (int twice = 0; twice < 2; ++twice) {
      const std::string m = error_of([&] { y.local(); });
      if (rt.rank() == 0)
        EXPECT_NE(m.find(" of rank 0 cannot be allocated"), m.npos) << m;
      else
        EXPECT_NE(m.find("rank 0 failed: [allocate]"), m.npos) << m;
    }
    EXPECT_NE(error_of([&] { after.local(); }).find("[allocate]"),
              std::string::npos);
    // The ranks' own threads can still redistribute; later asynchronous moves
    // fail.
    expect_columns(rows(mesh).redistribute("S1"));
    EXPECT_NE(error_of([&] {
                rows(mesh).redistribute_async("S1").local();
              }).find("rank 0 failed"),
              std::string::npos);
  });
}

TEST_P(AsyncTest, AFailureThatNobodyAskedForIsThrownInTheEnd) {
  const Mesh mesh = Mesh::parse("a=2");
  const std::string m =
      error_of([&] { run(2, [&](Runtime&) { too_large(mesh, true); }); });
  EXPECT_NE(m.find(" of rank 0 cannot be allocated"), m.npos) << m;
}

// Work that a move has enqueued before it failed may still read tensors that
// the rank frees now.
TEST(AsyncFailure, TheRanksStreamWaitsForWhatTheMoveHasEnqueued) {
  const std::unique_ptr<RecordingDevice> devices[] = {RecordingDevice::make(),
                                                      RecordingDevice::make()};
  RunOptions options;
  options.world = 2;
  options.device = [&](int64_t rank) -> Device& { return *devices[rank]; };
  run(options, [&](Runtime& rt) {
    const DistTensor y = too_large(Mesh::parse("a=2"), true);
    EXPECT_NE(error_of([&] { y.local(); }), "no error");
    const RecordingDevice& device = *devices[rt.rank()];
    rt.context().device->synchronize(rt.context().stream);
    EXPECT_EQ(device.waiting(), 0);
  });
}

TEST_P(AsyncTest, ARankThatFailsReleasesTheOthers) {
  const Mesh mesh = Mesh::parse("a=3");
  std::mutex mutex;
  std::set<std::string> seen;
  const std::string m = error_of([&] {
    run(3, [&](Runtime& rt) {
      const DistTensor x =
          DistTensor::from_global(counting({3, 3}), mesh, "S0");
      if (rt.rank() == 1) fail("test", "rank 1 gives up");
      const DistTensor y = x.redistribute_async("S1");
      const std::string why = error_of([&] { y.local(); });
      std::lock_guard lock(mutex);
      seen.insert(why.substr(why.find("rank 1")));
    });
  });
  EXPECT_EQ(m, "[test] rank 1 gives up");
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen.begin()->find("rank 1 failed: [test] rank 1 gives up"), 0u);
}

// Expects the error of a circle: rank 0 waits for its move, which is the
// all-to-all of this number, the move for rank 1, and rank 1 in a barrier.
void expect_circle(const std::string& error, int number) {
  EXPECT_NE(error.find("every rank waits for another one: rank 0 for its "
                       "redistribute_async; rank 0's redistribute_async in "
                       "all-to-all #" +
                       std::to_string(number)),
            error.npos)
      << error;
  EXPECT_NE(error.find("; rank 1 in barrier #"), error.npos) << error;
}

TEST_P(AsyncTest, RanksThatWaitInACircleAreTold) {
  const Mesh mesh = Mesh::parse("a=2");
  for (bool use : {true, false}) {
    const std::string m = error_of([&] {
      run(2, [&](Runtime& rt) {
        const DistTensor x = rows(mesh);
        if (rt.rank() == 0) {
          const DistTensor y = x.redistribute_async("S1");
          if (use) y.local();
        } else {
          rt.context().communicator(mesh, 1).barrier(
              {StepKind::kBarrier, "test"});
        }
      });
    });
    expect_circle(m, 1);
  }
}

// Rank 1's second thread has nothing to do, and waits for its rank.
TEST_P(AsyncTest, CirclesPassThroughThreadsWithoutMoves) {
  const Mesh mesh = Mesh::parse("a=2");
  RunOptions options = options_of(2);
  options.timeout = std::chrono::seconds(10);
  const std::string m = error_of([&] {
    dtensor::run(options, [&](Runtime& rt) {
      expect_columns(rows(mesh).redistribute_async("S1"));
      if (rt.rank() == 0)
        rows(mesh).redistribute_async("S1").local();
      else
        rt.context().communicator(mesh, 1).barrier(
            {StepKind::kBarrier, "test"});
    });
  });
  expect_circle(m, 2);
}

// All ranks' threads wait for moves that take a while to begin. That is no
// circle.
TEST_P(AsyncTest, ManyRanksThatWaitForTheirMovesAreNoCircle) {
  const Mesh mesh = Mesh::parse("a=4");
  run(4, [&](Runtime& rt) {
    for (int64_t i = 0; i < 30; ++i) {
      const DistTensor x =
          DistTensor::from_global(counting({4, 4}, i), mesh, "S0");
      if (i % 10 == 0 && rt.rank() == i / 10)
        std::this_thread::sleep_for(milliseconds(300));
      expect_columns(x.redistribute_async("S1"), i);
    }
  });
}

TEST_P(AsyncTest, EventsAndBudgetsAreThoseOfTheRank) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime& rt) {
    RankContext& ctx = rt.context();
    ctx.record = true;
    const DistTensor x = rows(mesh);
    CommBudget budget(100);
    const DistTensor y = x.redistribute_async("S1");
    EXPECT_EQ(budget.left(), 100 - 4 * 8);
    y.local();
    ASSERT_EQ(ctx.events.size(), 1u);
    EXPECT_EQ(ctx.events[0].counted, 4 * 8);
    EXPECT_EQ(ctx.events[0].op, "redistribute");
    NoComm nothing;
    EXPECT_NE(error_of([&] {
                rows(mesh).redistribute_async("S1");
              }).find("budget has 0 left"),
              std::string::npos);
  });
}

TEST(AsyncDryRunTest, IsDoneAtOnce) {
  RunOptions options;
  options.world = 2;
  options.dry_run = true;
  const Mesh mesh = Mesh::parse("a=2");
  run(options, [&](Runtime& rt) {
    rt.context().record = true;
    const DistTensor y = rows(mesh).redistribute_async("S1");
    EXPECT_EQ(rt.context().events.size(), 1u);
    EXPECT_EQ(y.local().shape(), (Shape{4, 2}));
  });
}

// Several tensors move in one collective, and one has its layout already.
TEST_P(AsyncTest, SeveralTogether) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime& rt) {
    const DistTensor x = rows(mesh), y = rows(mesh, 100);
    const Spec* columns = x.spec()->with(parse_layout("S1", mesh, x.shape()));
    const SpecRef to[] = {columns, x.spec(), columns};
    rt.context().record = true;
    std::vector<DistTensor> z{x, x, y};
    relayout(z, to, {.async = true});
    EXPECT_TRUE(z[1].same_as(x));
    expect_columns(z[2], 100);
    expect_columns(z[0]);
    const auto& events = rt.context().events;
    ASSERT_EQ(events.size(), 2u);
    EXPECT_EQ(events[0].collective, events[1].collective);
    EXPECT_EQ(events[0].counted, events[0].predicted);
    // Under a communication budget, the move is carried out at once.
    const CommBudget budget(1000);
    DistTensor now = x;
    relayout({&now, 1}, {to, 1}, {.async = true});
    EXPECT_LT(budget.left(), 1000);
  });
}

// With `consume`, a move may overwrite its source. It must not if others hold
// the source when it begins, even if they release it while the move waits for
// its turn.
TEST_P(AsyncTest, WhatIsSharedIsNotOverwritten) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime& rt) {
    RankContext& context = rt.context();
    const Spec* sum =
        Spec::get(mesh, {4}, parse_layout("P", mesh, {4}), DType::kI64);
    const Move move{sum, Spec::replicated(mesh, {4}, DType::kI64)};
    for (const bool shared : {false, true}) {
      Tensor part = counting({4}, rt.rank());
      const Tensor other = shared ? part : Tensor();
      const auto pending = begin_moves(context, {&move, 1}, {std::move(part)},
                                       {.consume = true});
      const Tensor done = pending[0]->wait();
      EXPECT_EQ(pending[0]->version(), done.storage()->version());
      EXPECT_EQ(done.to_integers(), (std::vector<int64_t>{1, 3, 5, 7}));
      if (!shared) continue;
      EXPECT_NE(done.storage(), other.storage());
      EXPECT_EQ(other.integer_at(3), 3 + rt.rank());
    }
    // The other handle is released while the move waits.
    std::vector<Tensor> held;
    for (int i = 0; i < 50; ++i) {
      Tensor part = counting({4}, rt.rank());
      held.push_back(part);
      begin_moves(context, {&move, 1}, {std::move(part)}, {.consume = true});
      held.pop_back();
    }
  });
}

TEST_P(AsyncTest, BetweenMeshes) {
  const Mesh from = Mesh::parse("a=2"), to({{"x", 2}}, {1, 2});
  run(4, [&](Runtime&) {
    const DistTensor y = rows(from).redistribute_async(to, "S1");
    if (y.here()) expect_columns(y);
  });
}

// Guards a fix: a redistribute_async() of a tensor that was itself under way
// started from the result of the first move of its batch, whichever move made
// the tensor. That was wrong if the batch had several moves, and if the tensor
// was a parameter that is gathered when it is read, which is no move.

std::vector<double> from(double first) {
  std::vector<double> all(4);
  for (size_t i = 0; i < 4; ++i) all[i] = first + static_cast<double>(i);
  return all;
}
DistTensor matrix(const Mesh& m, const std::vector<double>& values) {
  return DistTensor::from_global(Tensor::from({2, 2}, values.data()), m, "S0");
}

TEST(AsyncAfterOthers, OfSeveralMovesEachIsItself) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const std::vector<double> values[] = {from(1), from(5), from(9)};
    std::vector<DistTensor> y;
    for (const auto& v : values) y.push_back(matrix(m, v));
    const std::vector<SpecRef> to(
        3, matrix(m, values[0]).redistribute("S1").spec());
    relayout(y, to, {.async = true});
    std::vector<DistTensor> z;
    for (size_t i : {2, 0, 1}) z.push_back(y[i].redistribute_async("R"));
    EXPECT_EQ(z[0].full().to_doubles(), values[2]);
    EXPECT_EQ(z[1].full().to_doubles(), values[0]);
    EXPECT_EQ(z[2].full().to_doubles(), values[1]);
    for (size_t i = 0; i < 3; ++i)
      EXPECT_EQ(y[i].full().to_doubles(), values[i]);
  });
}

TEST(AsyncAfterOthers, AParameterThatIsGatheredWhenItIsRead) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    DistTensor w = matrix(m, from(1));
    w.as_parameter();
    const Spec* columns = w.redistribute("S1").spec();
    const DistTensor read = gathered_when_read(w, columns);
    const DistTensor z = read.redistribute_async("R");
    EXPECT_EQ(z.full().to_doubles(), from(1));
    EXPECT_EQ(read.full().to_doubles(), from(1));
  });
}

// Guards a fix: a rank could begin any number of moves ahead of those that were
// carried out. The moves piled up, together with the tensors that they read.

TEST(MovesBegunAhead, AreBounded) {
  constexpr int kMoves = 2000;
  constexpr int64_t kPart = 64 * 64 * 4;
  int64_t peak = 0;
  run(2, [&](Runtime& rt) {
    const Mesh mesh = Mesh::parse("a=2");
    const DistTensor x = randn({128, 64}, mesh, "S0");
    // Rank 0's moves cannot be carried out without rank 1.
    if (rt.rank() == 1)
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    for (int i = 0; i < kMoves; ++i) (x + i).redistribute_async("R");
    x.redistribute_async("R").local();
    if (rt.rank() == 0)
      peak = RankContext::current().allocator->stats().peak_bytes;
  });
  std::printf("%ld parts at once\n", static_cast<long>(peak / kPart));
  EXPECT_GT(peak, 3 * kPart);
  EXPECT_LT(peak, 300 * kPart);
}

}  // namespace
}  // namespace dtensor
