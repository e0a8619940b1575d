// SPDX-License-Identifier: Apache-2.0
// Tests the NCCL backend's own part: which moves become NCCL's collectives, and
// how ranks fail. (threads_test.cc tests the collectives themselves.)
#include "dtensor/comm/nccl.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/graph.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/dtensor/device/recording_device.h"
#include "tests/dtensor/fake_nccl.h"
#include "tests/one_tensor.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using Counts = testing::FakeNccl::Counts;
using testing::error_of;

// Ranks with a device each. The last device has `last_has` bytes of memory.
struct World {
  explicit World(int64_t ranks, int64_t last_has = int64_t{1} << 32) {
    options.world = ranks;
    options.backend = [this](int64_t n) {
      return nccl_backend(n, n, nullptr, nccl.get());
    };
    for (int64_t i = 0; i < ranks; ++i)
      devices.push_back(
          RecordingDevice::make(i + 1 < ranks ? int64_t{1} << 32 : last_has));
    options.device = [this](int64_t rank) -> Device& {
      return *devices[static_cast<size_t>(rank)];
    };
  }
  void run(const std::function<void(Runtime&)>& fn) {
    dtensor::run(options, fn);
  }
  std::unique_ptr<testing::FakeNccl> nccl = testing::FakeNccl::make();
  std::vector<std::unique_ptr<RecordingDevice>> devices;
  RunOptions options;
};

Tensor numbers(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(numel(shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return Tensor::from(shape, values.data());
}

// The NCCL calls of two ranks that move a tensor of this shape between layouts.
Counts moved(const Shape& shape, const char* from, const char* to) {
  World world(2);
  world.run([&](Runtime& rt) {
    const Tensor want = numbers(shape);
    DistTensor::from_global(want, rt.mesh(), from)
        .redistribute(to)
        .full()
        .to_doubles();
  });
  const Counts all = world.nccl->counts();
  // Subtract the calls of full().
  World again(2);
  again.run([&](Runtime& rt) {
    const DistTensor y = DistTensor::from_global(numbers(shape), rt.mesh(), to);
    EXPECT_EQ(y.full().to_doubles(), numbers(shape).to_doubles());
  });
  const Counts full = again.nccl->counts();
  return {all.links,
          all.all_gathers - full.all_gathers,
          all.reduce_scatters - full.reduce_scatters,
          all.all_reduces - full.all_reduces,
          all.sends - full.sends,
          all.aborts,
          all.groups,
          all.stuck};
}

TEST(NcclTest, EvenCollectivesAreItsOwn) {
  // Both ranks' calls are counted.
  EXPECT_EQ(moved({4, 3}, "S0", "R").all_gathers, 2);
  EXPECT_EQ(moved({4, 3}, "S0", "R").sends, 0);
  EXPECT_EQ(moved({4, 3}, "P", "S0").reduce_scatters, 2);
  EXPECT_EQ(moved({4, 3}, "P", "S0").sends, 0);
  EXPECT_EQ(moved({4, 3}, "P", "R").all_reduces, 2);
}

TEST(NcclTest, TheOthersGoFromMemberToMember) {
  // Parts are uneven or not contiguous, or NCCL has no such collective.
  EXPECT_EQ(moved({5, 3}, "S0", "R").all_gathers, 0);
  EXPECT_EQ(moved({5, 3}, "S0", "R").sends, 2);
  EXPECT_EQ(moved({4, 6}, "S1", "R").sends, 2);
  EXPECT_EQ(moved({5, 3}, "P", "S0").sends, 2);
  EXPECT_EQ(moved({4, 6}, "P", "S1").reduce_scatters, 0);
  EXPECT_EQ(moved({4, 6}, "S0", "S1").sends, 2);
}

// As on other backends, the largest and the smallest number are NaN if any
// rank's is, in an all-reduce ("R") and in a reduce-scatter ("S0").
TEST(NcclTest, ANanIsTheLargestAndTheSmallest) {
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  for (const char* op : {"P(max)", "P(min)"})
    for (int64_t ranks : {2, 3}) {
      World world(ranks);
      const bool max = op == std::string("P(max)");
      world.run([&](Runtime& rt) {
        // Each rank has one NaN, at its own index. The second half has none.
        std::vector<double> want;
        std::vector<float> mine;
        for (int64_t i = 0; i < 2 * ranks; ++i) {
          const bool is_nan = i == rt.rank();
          const double first = static_cast<double>(i) - 1;
          want.push_back(i < ranks ? nan : max ? first + ranks - 1 : first);
          mine.push_back(static_cast<float>(is_nan ? nan : first + rt.rank()));
        }
        for (const char* to : {"R", "S0"}) {
          const DistTensor x =
              DistTensor::from_local(Tensor::from({2 * ranks}, mine.data()),
                                     rt.mesh(), op, {2 * ranks});
          const auto got = x.redistribute(to).full().to_doubles();
          for (size_t i = 0; i < want.size(); ++i)
            EXPECT_TRUE(std::isnan(want[i]) ? std::isnan(got[i])
                                            : got[i] == want[i])
                << op << " to " << to << " of " << ranks << ": " << got[i]
                << " at " << i;
        }
      });
    }
}

// One member's source or destination has gaps, so no member calls NCCL's
// all-gather.
TEST(NcclTest, EvenIsWhatAllMembersSay) {
  for (const bool in_source : {false, true}) {
    World world(2);
    world.run([&](Runtime& rt) {
      RankContext& ctx = rt.context();
      Device& device = *ctx.device;
      const int64_t me = rt.rank(), row = me == 1 ? 5 : 3,
                    from_row = in_source ? row : 3,
                    to_row = in_source ? 3 : row;
      const Region whole{{{0, 4}}, {{0, 3}}};
      const std::vector<Region> has{{{{0, 2}}, {{0, 3}}}, {{{2, 4}}, {{0, 3}}}},
          wants{whole, whole};
      std::vector<float> part(static_cast<size_t>(2 * from_row), -1),
          all(static_cast<size_t>(4 * to_row), -1);
      for (int64_t i = 0; i < 6; ++i)
        part[static_cast<size_t>(i / 3 * from_row + i % 3)] =
            static_cast<float>(6 * me + i);
      void* src = device.allocate(8 * from_row, ctx.stream);
      void* dst = device.allocate(16 * to_row, ctx.stream);
      device.from_host(ctx.stream, src, part.data(), 8 * from_row);
      EXPECT_EQ(testing::exchange(
                    ctx.communicator({0, 1}), {StepKind::kAllGather, "test"},
                    ctx.stream, DType::kF32,
                    {src, {from_row, 1}, &has[static_cast<size_t>(me)]}, has,
                    {dst, {to_row, 1}, &whole}, wants),
                6 * 4);
      device.to_host(ctx.stream, all.data(), dst, 16 * to_row);
      for (int64_t i = 0; i < 12; ++i)
        EXPECT_EQ(all[static_cast<size_t>(i / 3 * to_row + i % 3)], i);
    });
    EXPECT_EQ(world.nccl->counts().all_gathers, 0) << in_source;
    EXPECT_EQ(world.nccl->counts().sends, 2) << in_source;
  }
}

TEST(NcclTest, OneLinkPerGroupAndMember) {
  World world(2);
  world.run([&](Runtime& rt) {
    for (int i = 0; i < 3; ++i)
      DistTensor::from_global(numbers({4}), rt.mesh(), "S0").redistribute("R");
    // A collective that moves no data needs no link.
    rt.context().communicator({1, 0}).barrier({StepKind::kBarrier, "test"});
  });
  EXPECT_EQ(world.nccl->counts().links, 2);
}

// NCCL would make the link during the capture, with threads of its own.
TEST(NcclTest, NoLinkIsOpenedInACapture) {
  World world(3);
  std::vector<std::string> errors(3);
  const std::string first = error_of([&] {
    world.run([&](Runtime& rt) {
      const DistTensor x =
          DistTensor::from_global(numbers({6, 4}), rt.mesh(), "S0");
      DistTensor y;
      std::string& error = errors[static_cast<size_t>(rt.rank())];
      error = error_of([&] { Graph([&] { y = x.redistribute("R"); }); });
      throw Error(error);
    });
  });
  EXPECT_EQ(first,
            "[nccl] ranks 0,1,2 are linked by their first collective that "
            "moves data, but rank 0 calls it while it is captured into a "
            "graph; call the step once before the graph is made");
  EXPECT_EQ(errors, std::vector<std::string>(3, first));
  EXPECT_EQ(world.nccl->counts().links, 0);
}

// Ranks share a graph if collectives join their streams. NCCL's kernels wait
// for each other, so each thread has to launch a graph of its own.
TEST(NcclTest, EachRankHasAGraphOfItsOwn) {
  for (const bool own : {false, true}) {
    World world(2);
    if (own) world.nccl->captures_no_collectives();
    std::vector<int64_t> given(2);
    world.run([&](Runtime& rt) {
      const auto rank = static_cast<size_t>(rt.rank());
      const RecordingDevice& device = *world.devices[rank];
      const DistTensor x =
          DistTensor::from_global(numbers({4}), rt.mesh(), "S0");
      DistTensor y;
      Graph graph([&] { y = x + x; });
      const int64_t before = device.given();
      graph.replay();
      given[rank] = device.given() - before;
      graph.replay();
      EXPECT_EQ(y.local().to_doubles()[1], 4 * rt.rank() + 2);
    });
    // A replay each; or rank 0 has a wait and the replay, and rank 1 has a
    // wait.
    const std::vector<int64_t> want =
        own ? std::vector<int64_t>{1, 1} : std::vector<int64_t>{2, 1};
    EXPECT_EQ(given, want) << own;
  }
}

TEST(NcclTest, InTheBackgroundToo) {
  World world(2);
  world.run([&](Runtime& rt) {
    const DistTensor x =
        DistTensor::from_global(numbers({6, 4}), rt.mesh(), "S0");
    const DistTensor y = x.redistribute_async("S1"), z = x.redistribute("R");
    EXPECT_EQ(y.full().to_doubles(), z.full().to_doubles());
  });
  EXPECT_EQ(world.nccl->counts().links, 4);
}

// With one hardware queue, a move in the background may be stuck behind work
// that waits for it.
TEST(NcclTest, NotInTheBackgroundOfOneQueue) {
  const auto run = [] {
    return error_of([] {
      World(2).run([](Runtime& rt) {
        const DistTensor x =
            DistTensor::from_global(numbers({6, 4}), rt.mesh(), "S0");
        x.redistribute("R").local().to_doubles();
        x.redistribute_async("S1").local().to_doubles();
      });
    });
  };
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
  const std::string error = run();
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8", 1);
  const std::string with_8 = run();
  unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
  EXPECT_EQ(error.find("[nccl] CUDA_DEVICE_MAX_CONNECTIONS is 1, "), 0u)
      << error;
  EXPECT_EQ(with_8, "no error");
}

constexpr int64_t kMiB = 1 << 20;

// All kinds of moves, of tensors that are even and that are not.
void move_all(Runtime& rt) {
  constexpr const char* kLayouts[] = {"R", "S0", "S1", "P", "P(max)"};
  for (const Shape& shape : {Shape{6, 4}, Shape{5, 7}})
    for (const char* from : kLayouts)
      for (const char* to : kLayouts) {
        const Tensor want = numbers(shape);
        const DistTensor x = DistTensor::from_global(want, rt.mesh(), from);
        EXPECT_EQ(x.redistribute(to).full().to_doubles(), want.to_doubles())
            << from << " to " << to;
        EXPECT_EQ(x.redistribute_async(to).full().to_doubles(),
                  want.to_doubles())
            << from << " to " << to;
      }
}

TEST(NcclTest, MovesBetweenAllLayouts) {
  World world(2);
  world.run(move_all);
  EXPECT_GT(world.nccl->counts().all_gathers, 0);
  EXPECT_GT(world.nccl->counts().sends, 0);
}

// A reduction that is even on one member only is sent in packed messages.
TEST(NcclTest, AReductionThatIsEvenOnOneMember) {
  World world(2);
  world.run([&](Runtime& rt) {
    RankContext& ctx = rt.context();
    Device& device = *ctx.device;
    const int64_t row = rt.rank() == 1 ? 5 : 3, me = rt.rank();
    const Region whole{{{0, 4}}, {{0, 3}}};
    const std::vector<Region> has{whole, whole},
        wants{{{{0, 2}}, {{0, 3}}}, {{{2, 4}}, {{0, 3}}}};
    std::vector<float> all(static_cast<size_t>(4 * row)), part(6);
    for (int64_t i = 0; i < 12; ++i)
      all[static_cast<size_t>(i / 3 * row + i % 3)] =
          static_cast<float>(i + 10 * me);
    void* src = device.allocate(16 * row, ctx.stream);
    void* dst = device.allocate(6 * 4, ctx.stream);
    device.from_host(ctx.stream, src, all.data(), 16 * row);
    testing::reduce(ctx.communicator({0, 1}),
                    {StepKind::kReduceScatter, "test"}, ctx.stream,
                    ReduceOp::kSum, DType::kF32, {src, {row, 1}, &whole}, has,
                    {dst, {3, 1}, &wants[static_cast<size_t>(me)]}, wants);
    device.to_host(ctx.stream, part.data(), dst, 6 * 4);
    for (int64_t i = 0; i < 6; ++i)
      EXPECT_EQ(part[static_cast<size_t>(i)], 2 * (6 * me + i) + 10);
    device.release(src, 16 * row, ctx.stream);
    device.release(dst, 6 * 4, ctx.stream);
  });
  EXPECT_EQ(world.nccl->counts().reduce_scatters, 0);
}

TEST(NcclTest, OneRankPerGpu) {
  World world(3);
  world.options.device = [&](int64_t rank) -> Device& {
    return *world.devices[rank == 2 ? 0 : static_cast<size_t>(rank)];
  };
  EXPECT_EQ(error_of([&] {
              world.run([](Runtime& rt) {
                DistTensor::from_global(numbers({6}), rt.mesh(), "S0")
                    .redistribute("R");
              });
            }),
            "[nccl] NCCL takes one rank per GPU, but ranks 0 and 2 share one; "
            "give each rank its own GPU, or run all ranks in one process with "
            "the backend threads");
}

TEST(NcclTest, OfGpusAlone) {
  World world(2);
  world.options.device = nullptr;
  EXPECT_EQ(error_of([&] {
              world.run([](Runtime& rt) {
                DistTensor::from_global(numbers({6}), rt.mesh(), "S0")
                    .redistribute("R");
              });
            }),
            "[nccl] rank 0 does not compute on a GPU; write --device cuda "
            "(RunOptions::device), or another backend");
}

// The errors of the ranks other than `failing` while they move tensors, and the
// error of the run.
std::pair<std::vector<std::string>, std::string> errors(World& world,
                                                        int64_t failing) {
  std::vector<std::string> others(static_cast<size_t>(world.options.world));
  const std::string own = error_of([&] {
    world.run([&](Runtime& rt) {
      const auto move = [&] {
        for (int i = 0; i < 5; ++i)
          DistTensor::from_global(numbers({64, 50}), rt.mesh(), "S1")
              .redistribute("R");
      };
      if (rt.rank() == failing) return move();
      others[static_cast<size_t>(rt.rank())] = error_of(move);
    });
  });
  others.erase(others.begin() + failing);
  return {others, own};
}

TEST(NcclTest, AnErrorOfItsOwnReleasesAll) {
  World world(3);
  world.nccl->fail(1, 3);
  const auto [others, own] = errors(world, 1);
  EXPECT_EQ(own, "[nccl] unhandled system error");
  for (const std::string& e : others)
    EXPECT_EQ(e.find("[all-gather] rank 1 failed: [nccl] unhandled system "
                     "error"),
              0u)
        << e;
  // Every link is aborted once.
  EXPECT_EQ(world.nccl->counts().aborts, 3);
}

// If NCCL refuses a call within a group, the group has to end. It belongs to
// the thread, which still destroys other links and may take part in further
// runs.
TEST(NcclTest, ARefusalEndsItsGroup) {
  World world(2);
  world.nccl->refuse(1, 2);
  const auto [others, own] = errors(world, 1);
  EXPECT_EQ(own, "[nccl] invalid argument");
  EXPECT_EQ(others[0].find("[all-gather] rank 1 failed: [nccl] invalid"), 0u)
      << others[0];
  EXPECT_EQ(world.nccl->counts().groups, 0);
  EXPECT_EQ(world.nccl->counts().aborts, 2);
}

// The others have called NCCL, and wait there, when a rank fails on its way.
TEST(NcclTest, ARankThatFailsAheadOfItsCallReleasesTheOthers) {
  // Enough for the tensors (13 KB the whole, 4 KB the part), not for packed
  // messages.
  World world(3, 39000);
  const auto [others, own] = errors(world, 2);
  EXPECT_NE(own.find("no memory left for"), own.npos) << own;
  for (const std::string& e : others)
    EXPECT_EQ(e.find("[all-gather] rank 2 failed: [all-gather] the device has "
                     "no memory left"),
              0u)
        << e;
  EXPECT_EQ(world.nccl->counts().aborts, 3);
}

TEST(NcclTest, ACallThatIsNotTakenInTime) {
  World world(2);
  world.options.timeout = std::chrono::milliseconds(100);
  world.nccl->hang(1, 2);
  const auto [others, own] = errors(world, 1);
  EXPECT_EQ(
      own,
      "[all-gather] NCCL has not accepted the call in 0.1 s: a GPU, or a "
      "network between GPUs, does not answer; NCCL_DEBUG=INFO shows which");
  // Rank 0 waits for rank 1, until it has waited that long itself.
  EXPECT_NE(others[0].find("NCCL has not accepted the call in 0.1 s"),
            std::string::npos)
      << others[0];
}

// Both links of a GPU have calls under way, and abort() of one waits for the
// other. So both must be told to abort before either is waited for.
TEST(NcclTest, AbortsOfOneGpuDoNotWaitForEachOther) {
  World world(2);
  world.options.timeout = std::chrono::seconds(1);
  world.nccl->hang(1, 1);
  EXPECT_NE(error_of([&] {
              world.run([](Runtime& rt) {
                const DistTensor x =
                    DistTensor::from_global(numbers({6, 4}), rt.mesh(), "S0");
                const DistTensor y = x.redistribute_async("S1");
                x.redistribute("R");
              });
            }).find("NCCL has not accepted the call in 1 s"),
            std::string::npos);
  EXPECT_EQ(world.nccl->counts().aborts, 4);
  EXPECT_EQ(world.nccl->counts().stuck, 0);
}

// abort() of a link waits until no graph holds the link's calls. So the thread
// that has the graph must hear of the failure while it waits for the link.
TEST(NcclTest, AbortsDoNotKeepThoseWhoHaveGraphs) {
  World world(2);
  world.nccl->fail(1, 3);
  EXPECT_EQ(error_of([&] {
              world.run([](Runtime& rt) {
                const DistTensor x =
                    DistTensor::from_global(numbers({6, 4}), rt.mesh(), "S0");
                x.redistribute("R");
                DistTensor y;
                Graph graph([&] { y = (x + x).redistribute("R"); });
                graph.replay();
                (x + x).redistribute("R");
              });
            }),
            "[nccl] unhandled system error");
  EXPECT_EQ(world.nccl->counts().aborts, 2);
  EXPECT_EQ(world.nccl->counts().stuck, 0);
}

// The devices' work does not end until somebody waits for it. A collective that
// does not end in time fails the run, though the host is busy with something
// else.
TEST(NcclTest, WorkThatDoesNotEndInTime) {
  World world(2);
  world.options.timeout = std::chrono::milliseconds(200);
  const auto run = [&](bool waits, bool graph) {
    return error_of([&] {
      world.run([&](Runtime& rt) {
        // Calls within a graph are not watched.
        if (graph) {
          const DistTensor x =
              DistTensor::from_global(numbers({6, 4}), rt.mesh(), "S0");
          x.redistribute("R");  // there is a link
          DistTensor y;
          Graph made([&] { y = (x + x).redistribute("R"); });
          made.replay();
          EXPECT_EQ(y.local().to_doubles()[5], 10);
        }
        const DistTensor x =
            DistTensor::from_global(numbers({6, 4}), rt.mesh(), "S0");
        x.local().to_doubles();  // the stream is idle
        const DistTensor y = x.redistribute("R");
        if (waits) y.local().to_doubles();
        std::this_thread::sleep_for(std::chrono::milliseconds(900));
      });
    });
  };
  for (bool graph : {false, true}) {
    EXPECT_EQ(run(true, graph), "no error");
    const std::string late = run(false, graph);
    EXPECT_NE(late.find("failed: [all-gather] the rank's GPU has been running "
                        "this collective for "
                        "0.2 s: another GPU, or a network between them, does "
                        "not answer; NCCL_DEBUG=INFO shows which"),
              late.npos)
        << late;
  }
}

}  // namespace
}  // namespace dtensor
