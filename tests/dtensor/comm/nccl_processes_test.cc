// SPDX-License-Identifier: Apache-2.0
// NCCL between ranks of several processes: they move what thread ranks move,
// and fail together. One process plays all of them, with a backend for each.
// The tests "Mpirun." start real processes with the GPUs of fake_gpus.cc.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dtensor/comm/backend.h"
#include "dtensor/comm/nccl.h"
#include "dtensor/dist_tensor.h"
#include "dtensor/graph.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/placement/error.h"
#include "dtensor/program/device_choice.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/dtensor/device/recording_device.h"
#include "tests/dtensor/fake_nccl.h"
#include "tests/dtensor/message_passing.h"
#include "tests/dtensor/tcp_processes.h"
#include "tests/mpirun.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// The number of ranks of a process; 0: all ranks are threads of one process.
struct Kind {
  const char* name;
  int64_t ranks;
  bool tcp = false;
};
void PrintTo(const Kind& k, std::ostream* out) { *out << k.name; }
constexpr Kind kThreads{"threads", 0};
constexpr Kind kKinds[] = {{"messages", 1},
                           {"messages_of_2", 2},
                           {"tcp", 1, true},
                           {"tcp_of_2", 2, true}};

// Ranks with a GPU each. The last GPU has `last_has` bytes of memory.
struct World {
  World(const Kind& kind, int64_t ranks, int64_t last_has = int64_t{1} << 32) {
    options.world = ranks;
    options.timeout = 20s;
    options.backend = [this, kind](int64_t n) {
      const auto make = [this](int64_t all, int64_t here, ProcessJob* job) {
        return nccl_backend(all, here, job, nccl.get());
      };
      if (kind.ranks == 0) return make(n, n, nullptr);
      return kind.tcp ? testing::backend_over_tcp(n, kind.ranks, make)
                      : testing::backend_over_messages(n, kind.ranks, make);
    };
    for (int64_t i = 0; i < ranks; ++i)
      gpus.push_back(
          RecordingDevice::make(i + 1 < ranks ? int64_t{1} << 32 : last_has));
    options.device = [this](int64_t rank) -> Device& {
      return *gpus[static_cast<size_t>(rank)];
    };
  }
  void run(const std::function<void(Runtime&)>& fn) {
    dtensor::run(options, fn);
  }
  // The error that a rank throws in fn(), or "no error", and the time.
  struct Thrown {
    std::string what;
    Clock::time_point when;
  };
  std::vector<Thrown> thrown(const std::function<void(Runtime&)>& fn) {
    std::vector<Thrown> all(static_cast<size_t>(options.world));
    error_of([&] {
      run([&](Runtime& rt) {
        Thrown& mine = all[static_cast<size_t>(rt.rank())];
        try {
          fn(rt);
          mine.what = "no error";
        } catch (const std::exception& e) {
          mine = {e.what(), Clock::now()};
          throw;
        }
      });
    });
    return all;
  }

  std::unique_ptr<testing::FakeNccl> nccl = testing::FakeNccl::make();
  std::vector<std::unique_ptr<RecordingDevice>> gpus;
  RunOptions options;
};

Tensor numbers(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(numel(shape)));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = 0.1f * static_cast<float>(i) + 1;
  return Tensor::from(shape, values.data());
}
void gather(Runtime& rt, const Shape& shape = {6}) {
  DistTensor::from_global(numbers(shape), rt.mesh(), "S0").redistribute("R");
}

class NcclProcesses : public ::testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(Kinds, NcclProcesses, ::testing::ValuesIn(kKinds),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

using Results = std::vector<std::vector<std::vector<double>>>;  // by rank

// Moves tensors, even and uneven, between all layouts, on both threads of a
// rank. The axes of the mesh are groups within and across processes.
Results moves(World& world) {
  constexpr const char* kLayouts[] = {"R,R",      "S0,R",  "S0,S1", "P,S1",
                                      "P(max),P", "S1,S0", "S0,S0"};
  Results all(static_cast<size_t>(world.options.world));
  world.run([&](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"dp", 2}, {"tp", 2}});
    auto& mine = all[static_cast<size_t>(rt.rank())];
    for (const Shape& shape : {Shape{8, 4}, Shape{7, 5}})
      for (const char* from : kLayouts)
        for (const char* to : kLayouts) {
          const DistTensor x =
              DistTensor::from_global(numbers(shape), mesh, "R,R")
                  .redistribute(from);
          const DistTensor later = x.redistribute_async(to),
                           now = x.redistribute(to);
          mine.push_back(now.local().to_doubles());
          mine.push_back(later.local().to_doubles());
        }
  });
  return all;
}

TEST_P(NcclProcesses, MoveWhatThreadsMove) {
  World threads(kThreads, 4), processes(GetParam(), 4);
  const Results want = moves(threads);
  EXPECT_TRUE(want == moves(processes));
  // Both make the same NCCL calls, and some of them are NCCL's collectives.
  const auto a = threads.nccl->counts(), b = processes.nccl->counts();
  EXPECT_GT(b.all_gathers, 0);
  EXPECT_GT(b.reduce_scatters, 0);
  EXPECT_GT(b.all_reduces, 0);
  EXPECT_GT(b.sends, 0);
  EXPECT_EQ(a.links, b.links);
  EXPECT_EQ(a.all_gathers, b.all_gathers);
  EXPECT_EQ(a.reduce_scatters, b.reduce_scatters);
  EXPECT_EQ(a.all_reduces, b.all_reduces);
  EXPECT_EQ(a.sends, b.sends);
  EXPECT_EQ(b.aborts, 0);
}

// Ranks do not agree again about collectives that a graph replays.
TEST_P(NcclProcesses, ReplayAGraph) {
  World world(GetParam(), 2);
  world.run([](Runtime& rt) {
    const DistTensor x =
        DistTensor::from_global(numbers({6, 4}), rt.mesh(), "S0");
    x.redistribute("R");  // there is a link
    DistTensor y;
    Graph made([&] { y = (x + x).redistribute("R"); });
    for (int i = 0; i < 3; ++i) made.replay();
    EXPECT_EQ(y.local().to_doubles(),
              (x + x).redistribute("R").local().to_doubles());
  });
}

// A hundred tensors, more than fit into a word. One member's memory for one of
// them has gaps, so no member calls NCCL's all-gather for it.
TEST_P(NcclProcesses, EvenIsWhatAllMembersSay) {
  constexpr int64_t kTensors = 100, kOdd = 70;
  World world(GetParam(), 3);
  world.run([&](Runtime& rt) {
    RankContext& ctx = rt.context();
    Device& device = *ctx.device;
    const int64_t me = rt.rank();
    const Region whole{{{0, 3}}, {{0, 2}}};
    std::vector<Region> has;
    for (int64_t m = 0; m < 3; ++m) has.push_back({{{m, m + 1}}, {{0, 2}}});
    const std::vector<Region> wants(3, whole);
    Communicator& comm = ctx.communicator({0, 1, 2});
    Schedule schedule =
        exchange_schedule(whole, has, comm.rank(), "all-gather");
    serve_exchange(schedule, wants);
    std::vector<Transfer> transfers;
    for (int64_t t = 0; t < kTensors; ++t) {
      const int64_t row = t == kOdd && me == 2 ? 5 : 2;
      const float part[] = {static_cast<float>(10 * t + me), -1};
      void* src = device.allocate(8, ctx.stream);
      device.from_host(ctx.stream, src, part, 8);
      transfers.push_back({.schedule = &schedule,
                           .dtype = DType::kF32,
                           .src = src,
                           .src_strides = {2, 1},
                           .dst = device.allocate(12 * row, ctx.stream),
                           .dst_strides = {row, 1}});
    }
    comm.exchange({StepKind::kAllGather, "test"}, ctx.stream, transfers);
    for (int64_t t = 0; t < kTensors; ++t) {
      const int64_t row = t == kOdd && me == 2 ? 5 : 2;
      std::vector<float> all(static_cast<size_t>(3 * row));
      device.to_host(ctx.stream, all.data(),
                     transfers[static_cast<size_t>(t)].dst, 12 * row);
      for (int64_t m = 0; m < 3; ++m)
        EXPECT_EQ(all[static_cast<size_t>(m * row)], 10 * t + m) << t;
    }
  });
  EXPECT_EQ(world.nccl->counts().all_gathers, 3 * (kTensors - 1));
  EXPECT_EQ(world.nccl->counts().sends, 3 * 2);
}

TEST_P(NcclProcesses, ThatDisagreeAllSayTheSame) {
  World world(GetParam(), 4);
  const auto all = world.thrown([](Runtime& rt) {
    gather(rt);  // there are links
    gather(rt, {rt.rank() == 3 ? 10 : 12});
  });
  EXPECT_NE(all[0].what.find("ranks 0 and 3 disagree about collective #2 of "
                             "ranks 0,1,2,3: rank 0 calls all-gather #2"),
            std::string::npos)
      << all[0].what;
  for (const auto& t : all) EXPECT_EQ(t.what, all[0].what);
}

TEST_P(NcclProcesses, TakeAGpuEach) {
  World world(GetParam(), 4);
  world.options.device = [&](int64_t rank) -> Device& {
    return *world.gpus[rank == 3 ? 1 : static_cast<size_t>(rank)];
  };
  for (const auto& t : world.thrown([](Runtime& rt) { gather(rt); }))
    EXPECT_EQ(t.what,
              "[nccl] NCCL takes one rank per GPU, but ranks 1 and 3 share "
              "one; give each rank its own GPU, or run all ranks in one "
              "process with the backend threads");
  world.options.device = [&](int64_t rank) -> Device& {
    return rank == 2 ? cpu() : *world.gpus[static_cast<size_t>(rank)];
  };
  for (const auto& t : world.thrown([](Runtime& rt) { gather(rt); }))
    EXPECT_EQ(t.what,
              "[nccl] rank 2 does not compute on a GPU; write --device cuda "
              "(RunOptions::device), or another backend");
}

// The others have called NCCL, and wait there, when a rank fails on its way.
TEST_P(NcclProcesses, ARankThatFailsReleasesTheOthers) {
  // Enough for the tensors (13 KB the whole, 4 KB the part), not for packed
  // messages.
  World world(GetParam(), 3, 39000);
  const auto all = world.thrown([](Runtime& rt) {
    for (int i = 0; i < 5; ++i)
      DistTensor::from_global(numbers({64, 50}), rt.mesh(), "S1")
          .redistribute("R");
  });
  EXPECT_NE(all[2].what.find("no memory left for"), std::string::npos);
  for (size_t r : {0, 1}) {
    EXPECT_EQ(all[r].what.find("[all-gather] rank 2 failed: [all-gather] the "
                               "device has no memory left"),
              0u)
        << all[r].what;
    EXPECT_LT(all[r].when - all[2].when, 1s);
  }
  EXPECT_EQ(world.nccl->counts().aborts, 3);
}

// Rank 3 fails in one lane, while the others wait in NCCL in both lanes.
TEST_P(NcclProcesses, AFailureReachesBothLanes) {
  World world(GetParam(), 4);
  world.nccl->hang(3, 1);
  const auto all = world.thrown([](Runtime& rt) {
    const Mesh mesh = rt.mesh();
    const DistTensor x = DistTensor::from_global(numbers({8, 4}), mesh, "S0");
    if (rt.rank() == 3) {
      std::this_thread::sleep_for(200ms);
      fail("test", "enough");
    }
    const DistTensor y = x.redistribute_async("R");
    y.local().to_doubles();
  });
  for (size_t r : {0, 1, 2}) {
    EXPECT_NE(all[r].what.find("rank 3 failed: [test] enough"),
              std::string::npos)
        << all[r].what;
    EXPECT_LT(all[r].when - all[3].when, 1s);
  }
}

TEST_P(NcclProcesses, ARankThatLeavesIsNamed) {
  World world(GetParam(), 4);
  const auto all = world.thrown([](Runtime& rt) {
    gather(rt);
    if (rt.rank() != 1) gather(rt);
  });
  EXPECT_EQ(all[1].what, "no error");
  for (size_t r : {0, 2, 3})
    EXPECT_TRUE(all[r].what.find("rank 1 has left the program while rank") !=
                    std::string::npos ||
                all[r].what.find("failed: ") != std::string::npos)
        << all[r].what;
}

TEST_P(NcclProcesses, ACallThatIsNotTakenInTime) {
  World world(GetParam(), 4);
  world.options.timeout = 500ms;
  world.nccl->hang(1, 2);
  const auto all = world.thrown([](Runtime& rt) {
    for (int i = 0; i < 3; ++i) gather(rt);
  });
  for (const auto& t : all)
    EXPECT_NE(t.what.find("NCCL has not accepted the call in 0.5 s"),
              std::string::npos)
        << t.what;
}

// The other ranks wait for rank 2 in an agreement.
TEST_P(NcclProcesses, ThatDoNotComeInTime) {
  World world(GetParam(), 4);
  world.options.timeout = 800ms;
  const Clock::time_point begun = Clock::now();
  const auto all = world.thrown([](Runtime& rt) {
    gather(rt);
    if (rt.rank() == 2) std::this_thread::sleep_for(3s);
    gather(rt);
  });
  for (size_t r : {0, 1, 3}) {
    EXPECT_NE(all[r].what.find("waited for 0.8 s in all-gather #2"),
              std::string::npos)
        << all[r].what;
    EXPECT_NE(all[r].what.find("rank 2 (its last collective was all-gather #1"),
              std::string::npos)
        << all[r].what;
    EXPECT_LT(all[r].when - begun, 3s);
  }
}

// A GPU does not end a collective in time. The run fails, though all hosts are
// busy with something else.
TEST_P(NcclProcesses, WorkThatDoesNotEndInTime) {
  World world(GetParam(), 4);
  world.options.timeout = 500ms;
  const std::string late = error_of([&] {
    world.run([](Runtime& rt) {
      const DistTensor x =
          DistTensor::from_global(numbers({8, 4}), rt.mesh(), "S0");
      x.local().to_doubles();  // the stream is idle
      const DistTensor y = x.redistribute("R");
      std::this_thread::sleep_for(1500ms);
    });
  });
  EXPECT_NE(
      late.find("the rank's GPU has been running this collective for 0.5 s"),
      late.npos)
      << late;
}

// Groups whose members are in one process, in several, or alone.
TEST_P(NcclProcesses, EveryGroupHasItsLink) {
  World world(GetParam(), 4);
  world.run([](Runtime& rt) {
    RankContext& ctx = rt.context();
    const auto sum = [&](const std::vector<int64_t>& ranks) {
      float x = static_cast<float>(rt.rank() + 1);
      void* at = ctx.device->allocate(4, ctx.stream);
      ctx.device->from_host(ctx.stream, at, &x, 4);
      ctx.communicator(ranks).all_reduce({StepKind::kAllReduce, "test"},
                                         ctx.stream, ReduceOp::kSum,
                                         DType::kF32, at, 1);
      ctx.device->to_host(ctx.stream, &x, at, 4);
      return x;
    };
    const int64_t me = rt.rank();
    EXPECT_EQ(sum({me}), me + 1);
    EXPECT_EQ(sum({me / 2 * 2, me / 2 * 2 + 1}), me / 2 ? 7 : 3);
    EXPECT_EQ(sum({me % 2, me % 2 + 2}), me % 2 ? 6 : 4);
    EXPECT_EQ(sum({3, 0, 2, 1}), 10);
    if (me != 2) {
      EXPECT_EQ(sum({3, 1, 0}), 7);
      EXPECT_EQ(sum({3, 1, 0}), 7);
    }
    // Gathers few bytes and many.
    for (const size_t n : {1u, 3000u}) {
      std::vector<int64_t> mine(n, me), all(4 * n);
      ctx.communicator({0, 1, 2, 3})
          .all_gather_bytes({StepKind::kAllGatherBytes, "test"}, mine.data(),
                            static_cast<int64_t>(8 * n), all.data());
      for (size_t i = 0; i < all.size(); ++i)
        EXPECT_EQ(all[i], static_cast<int64_t>(i / n));
    }
  });
  // The four pairs have 2 links each, the group of four has 4, and the last one
  // 3.
  EXPECT_EQ(world.nccl->counts().links, 15);
}

// At most 18 ranks of a process can agree on what they send.
TEST(NcclProcess, HasSoManyRanks) {
  for (const int64_t ranks : {18, 19}) {
    World world({"messages", ranks}, 20);
    const std::string error =
        error_of([&] { world.run([](Runtime& rt) { gather(rt, {40}); }); });
    EXPECT_EQ(
        error,
        ranks == 18
            ? "no error"
            : "[communicator] a process has 19 ranks of this group, but "
              "in this backend at most 18 ranks of a process can agree on what "
              "they send; write --ranks-per-process 18 or less");
  }
}

// A program without flags names the backend.
class OfAJob : public ::testing::TestWithParam<int64_t> {};
TEST_P(OfAJob, TheBackendIsNamed) {
  const char* text = std::getenv("DTENSOR_RANKS_PER_PROCESS");
  const int64_t ranks = std::stoi(text ? text : "1");
  RunOptions options;
  options.world = GetParam();
  options.backend = backend_named("nccl", ranks);
  options.device = devices_for(
      parse_device("cuda"),
      {local_process(mpi_backend()), mpi_backend().process() * ranks, ranks});
  run(options, [](Runtime& rt) {
    const DistTensor x =
        DistTensor::from_global(numbers({9, 4}), rt.mesh(), "S0");
    EXPECT_EQ(x.redistribute("S1").full().to_doubles(),
              numbers({9, 4}).to_doubles());
  });
}
INSTANTIATE_TEST_SUITE_P(Mpi, OfAJob, ::testing::Values(4));

void run_with_files(int64_t processes, int64_t ranks) {
  const std::string folder = ::testing::TempDir() + "/nccl_processes_files";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  testing::run_mpi_tests(processes, ranks, "FILE_NCCL=" + folder);
  EXPECT_TRUE(!testing::no_mpi().empty() || !std::filesystem::is_empty(folder));
}
TEST(Mpirun, FourProcesses) { run_with_files(4, 1); }
TEST(Mpirun, TwoProcessesOfTwoRanks) { run_with_files(2, 2); }

}  // namespace
}  // namespace dtensor

int main(int argc, char** argv) {
  return dtensor::testing::main_with_mpi_tests(argc, argv);
}
