// SPDX-License-Identifier: Apache-2.0
// Runs of several processes: tensors that move in the background and between
// meshes, and ranks that fail, leave, wait in a circle or disagree.
#include "tests/dtensor/message_passing.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/comm/agreement.h"
#include "dtensor/comm/mpi.h"
#include "dtensor/comm_table.h"
#include "dtensor/dist_tensor.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/dtensor/tcp_processes.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

// Makes a backend of several processes: over queues, or over TCP.
struct Kind {
  const char* name;
  std::shared_ptr<Backend> (*make)(int64_t world);
};
void PrintTo(const Kind& k, std::ostream* out) { *out << k.name; }

class MessagePassing : public ::testing::TestWithParam<Kind> {
 protected:
  static void run_messages(int64_t world,
                           const std::function<void(Runtime&)>& fn) {
    RunOptions options;
    options.world = world;
    options.backend = GetParam().make;
    run(options, fn);
  }
  static std::string error_of(int64_t world,
                              const std::function<void(Runtime&)>& fn) {
    try {
      run_messages(world, fn);
    } catch (const std::exception& e) {
      return e.what();
    }
    return "no error";
  }
};
INSTANTIATE_TEST_SUITE_P(
    Wires, MessagePassing,
    ::testing::Values(Kind{"Queues", testing::message_passing_backend},
                      Kind{"QueuesOf2", testing::processes_of_2},
                      Kind{"Tcp", testing::over_tcp},
                      Kind{"TcpOf2", testing::over_tcp_of_2}),
    [](const auto& info) { return std::string(info.param.name); });

Tensor numbers(const Shape& shape) {
  Tensor t = Tensor::empty(shape, DType::kF32);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.mutable_ptr<float>()[i] = static_cast<float>(i);
  return t;
}

void expect_numbers(const DistTensor& x) {
  const Tensor full = x.full();
  for (int64_t i = 0; i < full.numel(); ++i) EXPECT_EQ(full.at(i), i);
}

// Every move receives, on the rank that has the most of it, the bytes that were
// predicted.
TEST_P(MessagePassing, Async) {
  std::vector<std::vector<CommEvent>> events(4);
  run_messages(4, [&](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"a", 2}, {"b", 2}});
    RankContext& ctx = rt.context();
    ctx.record = true;
    const DistTensor x =
        DistTensor::from_global(numbers({7, 5}), mesh, "S0,S1");
    std::vector<DistTensor> moved;
    for (const char* to : {"S1,S0", "R,R", "S0,S0", "R,S1"})
      moved.push_back(x.redistribute_async(to));
    moved.push_back(moved[0].redistribute_async("R,S0"));
    // Meanwhile the rank's own thread communicates as well.
    expect_numbers(x);
    for (const DistTensor& t : moved) expect_numbers(t);
    events[static_cast<size_t>(rt.rank())] = ctx.events;
  });
  const std::vector<CommEvent> merged = merge_events(events);
  EXPECT_GE(merged.size(), 6u);
  for (const CommEvent& e : merged) {
    EXPECT_GT(e.predicted, 0);
    EXPECT_EQ(e.counted, e.predicted) << name(e.kind) << " of " << e.op;
  }
}

TEST_P(MessagePassing, BetweenMeshes) {
  run_messages(5, [](Runtime&) {
    const Mesh from({{"a", 2}, {"b", 2}}, {3, 1, 0, 2});
    const Mesh to({{"x", 3}}, {2, 4, 3});
    const DistTensor x = DistTensor::from_global(numbers({6, 5}), from, "S1,P");
    for (const char* layout : {"S0", "R", "S1"}) {
      const DistTensor y = x.redistribute(to, layout);
      const DistTensor back = y.redistribute(from, "R,R");
      if (back.mesh().mesh_rank_of(RankContext::current().world_rank) >= 0)
        expect_numbers(back);
    }
  });
}

TEST_P(MessagePassing, ARankThatFailsIsNamed) {
  const std::string e = error_of(3, [](Runtime& rt) {
    const Mesh mesh = rt.mesh();
    if (rt.rank() == 1) fail("test", "on purpose");
    DistTensor::from_global(numbers({6}), mesh, "S0").redistribute("R");
  });
  EXPECT_EQ(e, "[test] on purpose");
}

TEST_P(MessagePassing, ARankThatLeavesIsNamed) {
  const std::string e = error_of(2, [](Runtime& rt) {
    const Mesh mesh = rt.mesh();
    if (rt.rank() == 1) return;
    DistTensor::from_global(numbers({6}), mesh, "S0").redistribute("R");
  });
  EXPECT_NE(e.find("rank 1 has left the program while rank 0 waits in"),
            std::string::npos)
      << e;
}

void barrier_of(Runtime& rt, const std::vector<int64_t>& ranks) {
  rt.context().communicator(ranks).barrier({StepKind::kBarrier, "test"});
}

// Ranks that wait for each other get an error, without any timeout.
TEST_P(MessagePassing, ACircleIsFound) {
  const std::string e = error_of(3, [](Runtime& rt) {
    const int64_t me = rt.rank(), next = (me + 1) % 3;
    barrier_of(rt, {std::min(me, next), std::max(me, next)});
  });
  EXPECT_EQ(e,
            "[barrier] every rank waits for another one: rank 0 in barrier #1 "
            "for test of ranks 0,1; rank 1 in barrier #1 for test of ranks "
            "1,2; rank 2 in barrier #1 for test of ranks 0,2; let all ranks "
            "run the same operators in the same order");
}

// The ranks outside of the circle compute, or wait for a rank in it.
TEST_P(MessagePassing, ACircleOfSomeRanksIsFound) {
  std::atomic<bool> over = false;
  const std::string e = error_of(6, [&](Runtime& rt) {
    const int64_t me = rt.rank();
    barrier_of(rt, {0, 1, 2, 3, 4, 5});
    if (me == 0) {
      while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    try {
      if (me == 1) barrier_of(rt, {1, 2});
      if (me == 2) barrier_of(rt, {2, 3});
      if (me >= 4) barrier_of(rt, {4, 5});
      if (me == 3 || me == 5) barrier_of(rt, {1, 3, 5});
      if (me == 4) barrier_of(rt, {2, 4});
    } catch (...) {
      over = true;
      throw;
    }
  });
  EXPECT_EQ(e,
            "[barrier] ranks 1,2,3 wait for each other: rank 1 in barrier #1 "
            "for test of ranks 1,2; rank 2 in barrier #1 for test of ranks "
            "2,3; rank 3 in barrier #1 for test of ranks 1,3,5; let all ranks "
            "run the same operators in the same order");
}

// Rank 1 waits for its move, the move for rank 2, and rank 2 for rank 1.
TEST_P(MessagePassing, ACircleThroughAMoveIsFound) {
  const std::string e = error_of(3, [](Runtime& rt) {
    const Mesh mesh({{"a", 2}}, {1, 2});
    if (rt.rank() == 0) return;
    const DistTensor x = DistTensor::from_global(numbers({6, 6}), mesh, "S0");
    if (rt.rank() == 1)
      x.redistribute_async("S1").local();
    else
      barrier_of(rt, {1, 2});
  });
  EXPECT_EQ(e,
            "[all-to-all] ranks 1,2 wait for each other: rank 1 for its "
            "redistribute_async; rank 1's redistribute_async in all-to-all #1 "
            "for redistribute of ranks 1,2; rank 2 in barrier #1 for test of "
            "ranks 1,2; let all ranks run the same operators in the same "
            "order");
}

// Each rank in turn is late, for longer than a search for circles takes. The
// others wait for it in both of their groups and for their moves.
TEST_P(MessagePassing, LateRanksAreNoCircle) {
  run_messages(6, [](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"a", 3}, {"b", 2}});
    const std::vector<int64_t> row = {rt.rank() / 2 * 2, rt.rank() / 2 * 2 + 1};
    const DistTensor x =
        DistTensor::from_global(numbers({6, 6}), mesh, "S0,S1");
    for (int64_t late = 0; late < 6; ++late) {
      const DistTensor y = x.redistribute_async("S1,R");
      if (rt.rank() == late)
        std::this_thread::sleep_for(std::chrono::milliseconds(330));
      for (int i = 0; i < 20; ++i) barrier_of(rt, row);
      barrier_of(rt, {0, 1, 2, 3, 4, 5});
      expect_numbers(y);
    }
  });
}

TEST_P(MessagePassing, DisagreementsAreThoseOfThreadRanks) {
  for (const int64_t odd : {0, 1, 2, 3}) {
    const auto program = [odd](Runtime& rt) {
      const Mesh mesh = rt.mesh();
      float x[4] = {7, 7, 7, 7};
      try {
        rt.context().communicator(mesh, 1).all_reduce(
            {StepKind::kAllReduce, "test"}, {},
            rt.rank() == odd ? ReduceOp::kMax : ReduceOp::kSum, DType::kF32, x,
            4);
      } catch (const PeerFailed& e) {
        ADD_FAILURE() << e.what();  // every rank must have an error of its own
      } catch (const Error&) {
        for (float v : x) EXPECT_EQ(v, 7);
        throw;
      }
    };
    const std::string threads = testing::error_of([&] { run(4, program); });
    EXPECT_NE(threads.find("disagree"), std::string::npos);
    RunOptions options;
    options.world = 4;
    options.backend = GetParam().make;
    EXPECT_EQ(testing::error_of([&] { run(options, program); }), threads)
        << odd;
  }
}

// --- Observers, and backends by name
// ------------------------------------------

struct Told : Observer {
  explicit Told(std::vector<std::string>& list) : list(list) {}
  void begins(const Collective& c) override {
    list.push_back(statement_of(c).text);
  }
  void ends(const Collective&) noexcept override { ++ended; }
  std::vector<std::string>& list;
  size_t ended = 0;
};

TEST(ObserverTest, IsToldOfEveryCollective) {
  for (bool messages : {false, true}) {
    std::vector<std::vector<std::string>> lists(2);
    RunOptions options;
    options.world = 2;
    if (messages) options.backend = testing::message_passing_backend;
    run(options, [&](Runtime& rt) {
      const auto at = static_cast<size_t>(rt.rank());
      Told told(lists[at]);
      const Observing observing(rt.context(), told);
      const Mesh mesh = rt.mesh();
      DistTensor::from_global(numbers({6}), mesh, "S0").redistribute("R");
      DistTensor::from_global(numbers({6}), mesh, "P").redistribute("S0");
      EXPECT_EQ(told.ended, lists[at].size());
    });
    EXPECT_EQ(lists[0],
              (std::vector<std::string>{
                  "all-gather #1 (f32) for redistribute: f32[6](S0) -> "
                  "f32[6](R) on ranks=2",
                  "reduce-scatter #2 (sum, f32) for redistribute: f32[6](P) "
                  "-> f32[6](S0) on ranks=2"}));
    EXPECT_EQ(lists[1], lists[0]);
  }
}

TEST(BackendTest, ByName) {
  EXPECT_EQ(data_backend("mpi"), data_backend("threads"));
  EXPECT_EQ(data_backend("smoke"), nullptr);
  EXPECT_EQ(gpu_backend().name, "nccl");
  EXPECT_EQ(&gpu_backend(), &data_backends()[1]);
  EXPECT_NE(backend_named("threads")(2), nullptr);
  EXPECT_TRUE(backend_named("tcp", 2));
  EXPECT_EQ(testing::error_of([&] { backend_named("smoke"); }),
            "[run] there is no backend smoke; write threads, nccl, mpi or tcp");
  if (mpi_is_built()) {
    EXPECT_TRUE(backend_named("mpi", 2));
  } else {
    EXPECT_EQ(
        testing::error_of([&] { backend_named("mpi"); }),
        "[run] this program is built without MPI; build it where MPI is "
        "installed (./setup.sh installs Open MPI), start it with torchrun and "
        "--backend tcp, or start one process with --backend threads");
  }
}

}  // namespace
}  // namespace dtensor
