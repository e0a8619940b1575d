// SPDX-License-Identifier: Apache-2.0
// Ranks of one group that call different things, and calls that a member finds
// wrong by itself. See dtensor/comm/host_communicator.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "dtensor/comm/host_communicator.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/one_tensor.h"

namespace dtensor {
namespace {

Call call(StepKind kind, std::string_view op = "test", uint64_t fingerprint = 1,
          const char* text = nullptr) {
  const auto describe = [](const void* what) {
    return std::string(static_cast<const char*>(what));
  };
  return {kind, op, fingerprint, text ? +describe : nullptr, text};
}

// Calls fn(comm, rank) on every rank, with the group of the whole run.
void on_ranks(int64_t world,
              const std::function<void(Communicator&, int)>& fn) {
  run(world, [&](Runtime& rt) {
    Mesh mesh = rt.mesh();
    Communicator& comm = rt.context().communicator(mesh, mesh.all_axes());
    ASSERT_EQ(comm.size(), world);
    ASSERT_EQ(comm.rank(), rt.rank());
    fn(comm, comm.rank());
  });
}

// Calls a collective on 12 elements. A disagreement must leave them as they
// are.
using Act = std::function<void(Communicator&, float*)>;

Act reduce_of(ReduceOp op, DType t, int64_t n,
              std::string_view for_op = "matmul", uint64_t print = 1) {
  return [=](Communicator& c, float* x) {
    c.all_reduce(call(StepKind::kAllReduce, for_op, print, "x"), {}, op, t, x,
                 n);
  };
}

Act gather_of(uint64_t print, bool uneven, DType t = DType::kF32) {
  return [=](Communicator& c, float* x) {
    std::vector<Region> sources;
    const int64_t p = c.size(), n = 8;
    for (int64_t m = 0; m < p; ++m)
      sources.push_back({uneven ? (m ? IntervalList{} : IntervalList{{0, n}})
                                : IntervalList{{m * n / p, (m + 1) * n / p}}});
    const std::vector<Region> all(static_cast<size_t>(p), Region{{{0, n}}});
    float local[8] = {};
    const testing::Part src{
        local, {1}, &sources[static_cast<size_t>(c.rank())]};
    testing::exchange(
        c,
        call(StepKind::kAllGather, "matmul", print, "f32[8](S0) -> f32[8](R)"),
        {}, t, src, sources, {x, {1}, &all[0]}, all);
  };
}

void expect_disagreement(int64_t world, const Act& right, const Act& wrong,
                         int64_t odd, const std::string& contains = "") {
  std::vector<std::string> errors(static_cast<size_t>(world));
  const auto start = std::chrono::steady_clock::now();
  on_ranks(world, [&](Communicator& comm, int me) {
    for (int round = 0; round < 3; ++round) {
      float x[12];
      std::fill_n(x, 12, 7.f);
      try {
        (me == odd ? wrong : right)(comm, x);
        ADD_FAILURE() << "no error on rank " << me;
      } catch (const PeerFailed& e) {
        ADD_FAILURE() << e.what();
      } catch (const Error& e) {
        if (round == 0) errors[static_cast<size_t>(me)] = e.what();
      }
      for (float v : x) EXPECT_EQ(v, 7.f);
      // The group can still be used.
      int32_t one = 1;
      comm.all_reduce(call(StepKind::kAllReduce), {}, ReduceOp::kSum,
                      DType::kI32, &one, 1);
      EXPECT_EQ(one, world);
    }
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  for (const std::string& e : errors) {
    EXPECT_EQ(e, errors[0]);
    EXPECT_NE(e.find(contains), std::string::npos) << e;
  }
}

TEST(DisagreementTest, Everything) {
  using enum ReduceOp;
  const auto right = reduce_of(kSum, DType::kF32, 3);
  const std::pair<const char*, Act> wrongs[] = {
      {"all-reduce #1 (sum, i32, 3 elements)", reduce_of(kSum, DType::kI32, 3)},
      {"(max, f32, 3 elements)", reduce_of(kMax, DType::kF32, 3)},
      {"(sum, f32, 4 elements)", reduce_of(kSum, DType::kF32, 4)},
      {"for add", reduce_of(kSum, DType::kF32, 3, "add")},
      {"(fingerprint 0000000000000002)",
       reduce_of(kSum, DType::kF32, 3, "matmul", 2)},
      {"all-gather #1 (f32) for matmul: f32[8](S0) -> f32[8](R)",
       gather_of(1, false)},
      {"barrier #1 for matmul",
       [](Communicator& c, float*) {
         c.barrier(call(StepKind::kBarrier, "matmul"));
       }},
      {"barrier #1",
       [](Communicator& c, float*) { c.barrier(call(StepKind::kBarrier)); }},
      {"all-gather-bytes #1 (4 bytes)",
       [](Communicator& c, float*) {
         int in = 0, out[8] = {};
         c.all_gather_bytes(call(StepKind::kAllGatherBytes), &in, 4, out);
       }},
  };
  for (const auto& [text, wrong] : wrongs)
    for (int64_t world : {2, 3, 8})
      for (int64_t odd : {int64_t{0}, world - 1})
        expect_disagreement(world, right, wrong, odd, text);
}

TEST(DisagreementTest, SpecsOfAnExchange) {
  for (int64_t world : {2, 4}) {
    expect_disagreement(world, gather_of(1, false), gather_of(2, false), 1);
    expect_disagreement(world, gather_of(1, false),
                        gather_of(1, false, DType::kI32), 0);
    // The fingerprints are the same, but the members' sources are compared too.
    expect_disagreement(world, gather_of(1, false), gather_of(1, true), 1);
  }
}

// Several tensors that move together: their number, and each one, is compared.
Act exchange_of(std::vector<std::pair<DType, int64_t>> tensors) {
  return [=](Communicator& c, float* x) {
    std::vector<Schedule> schedules;
    float local[12] = {};
    for (const auto& [dtype, n] : tensors) {
      const std::vector<Region> sources(static_cast<size_t>(c.size()),
                                        Region{{{0, n}}});
      schedules.push_back(
          exchange_schedule({{{0, n}}}, sources, c.rank(), "exchange"));
    }
    std::vector<Transfer> transfers;
    for (size_t i = 0; i < tensors.size(); ++i)
      transfers.push_back(
          {&schedules[i], tensors[i].first, local, {1}, x, {1}});
    c.exchange(call(StepKind::kExchange, "move", 1, "x"), {}, transfers);
  };
}

Act reductions_of(std::vector<std::tuple<ReduceOp, DType, int64_t>> list,
                  bool all) {
  return [=](Communicator& c, float* x) {
    std::vector<Schedule> schedules;
    std::vector<Transfer> transfers;
    std::vector<Buffer> buffers;
    float local[12] = {};
    for (const auto& [op, dtype, n] : list) {
      const std::vector<Region> sources(static_cast<size_t>(c.size()),
                                        Region{{{0, n}}});
      schedules.push_back(reduce_schedule({{{0, n}}}, sources, c.rank()));
      buffers.push_back({op, dtype, x, n});
    }
    for (size_t i = 0; i < list.size(); ++i)
      transfers.push_back({&schedules[i],
                           std::get<1>(list[i]),
                           local,
                           {1},
                           x,
                           {1},
                           std::get<0>(list[i])});
    if (all)
      c.all_reduce(call(StepKind::kAllReduce, "move"), {}, buffers);
    else
      c.reduce(call(StepKind::kReduceScatter, "move"), {}, transfers);
  };
}

TEST(DisagreementTest, SeveralTensors) {
  using enum DType;
  const auto right = exchange_of({{kF32, 3}, {kI32, 2}});
  for (int64_t world : {2, 3}) {
    const int64_t odd = world - 1;
    expect_disagreement(world, right, exchange_of({{kF32, 3}}), odd,
                        "calls exchange #1 (f32) for move: x");
    expect_disagreement(
        world, right, exchange_of({{kF32, 3}, {kI32, 2}, {kF32, 3}}), odd,
        "rank 0 calls exchange #1 (2 tensors: f32, i32) for move: x");
    expect_disagreement(world, right,
                        exchange_of({{kF32, 3}, {kI32, 2}, {kF32, 3}}), odd,
                        "calls exchange #1 (3 tensors: f32, i32, f32)");
    expect_disagreement(world, right, exchange_of({}), odd,
                        "calls exchange #1 (0 tensors)");
    expect_disagreement(world, right, exchange_of({{kF32, 3}, {kF32, 2}}), 0,
                        "(2 tensors: f32, f32)");
    // The types are the same, but the second schedule differs.
    expect_disagreement(world, right, exchange_of({{kF32, 3}, {kI32, 3}}), 0);
  }
}

TEST(DisagreementTest, SeveralReductions) {
  using enum DType;
  using enum ReduceOp;
  for (bool all : {false, true}) {
    const auto right = reductions_of({{kSum, kF32, 3}, {kMax, kI32, 2}}, all);
    expect_disagreement(
        2, right, reductions_of({{kSum, kF32, 3}, {kMin, kI32, 2}}, all), 1,
        all ? "(2 tensors: sum f32 3 elements, min i32 2 elements)"
            : "(2 tensors: sum f32, min i32)");
    expect_disagreement(2, right, reductions_of({{kSum, kF32, 3}}, all), 1,
                        all ? "(sum, f32, 3 elements)" : "(sum, f32)");
    expect_disagreement(
        2, right, reductions_of({{kSum, kF32, 3}, {kMax, kI32, 3}}, all), 0);
    expect_disagreement(
        2, right,
        reductions_of({{kSum, kF32, 3}, {kMax, kI32, 2}, {kSum, kF32, 0}}, all),
        1, "(3 tensors: sum f32");
  }
}

TEST(DisagreementTest, LargeBuffers) {
  std::vector<std::string> errors(2);
  on_ranks(2, [&](Communicator& comm, int me) {
    std::vector<float> x(100000, 3.f);
    try {
      comm.all_reduce(call(StepKind::kAllReduce), {},
                      me ? ReduceOp::kMin : ReduceOp::kMax, DType::kF32,
                      x.data(), 100000);
    } catch (const Error& e) {
      errors[static_cast<size_t>(me)] = e.what();
    }
    EXPECT_EQ(std::count(x.begin(), x.end(), 3.f), 100000);
  });
  EXPECT_EQ(errors[0],
            "[all-reduce] ranks 0 and 1 disagree about collective #1 of ranks "
            "0,1: rank 0 calls all-reduce #1 (max, f32, 100000 elements) for "
            "test; rank 1 calls all-reduce #1 (min, f32, 100000 elements) for "
            "test; let every rank run the same operators on the same layouts "
            "in the same order");
  EXPECT_EQ(errors[1], errors[0]);
}

// The ranks make the same two calls in different orders.
TEST(DisagreementTest, Order) {
  std::atomic<int> errors{0};
  on_ranks(2, [&](Communicator& comm, int me) {
    float x[3] = {1, 1, 1};
    const auto a = reduce_of(ReduceOp::kSum, DType::kF32, 1, "a");
    const auto b = reduce_of(ReduceOp::kSum, DType::kF32, 1, "b");
    for (int i = 0; i < 2; ++i) try {
        ((me + i) % 2 ? a : b)(comm, x);
      } catch (const Error&) {
        ++errors;
      }
    EXPECT_EQ(x[0], 1);
  });
  EXPECT_EQ(errors, 4);
}

// Wrong calls that a member can see by itself do not reach the others.
TEST(ThreadsErrorTest, OwnMistakes) {
  on_ranks(2, [](Communicator& comm, int me) {
    auto error_of = [](auto fn) -> std::string {
      try {
        fn();
      } catch (const Error& e) {
        return e.what();
      }
      return "no error";
    };
    float x[8] = {};
    EXPECT_EQ(error_of([&] {
                comm.all_reduce(call(StepKind::kAllReduce), {}, ReduceOp::kMean,
                                DType::kF32, x, 8);
              }),
              "[all-reduce] a mean reduces pairs of a sum and a count, which "
              "have to be added; reduce both with sum, then divide");
    EXPECT_EQ(error_of([&] {
                comm.all_reduce(call(StepKind::kAllReduce), {}, ReduceOp::kSum,
                                DType::kBool, x, 8);
              }),
              "[all-reduce] the sum of bool is not a bool; write any, or cast "
              "to i64 first");
    EXPECT_EQ(error_of([&] {
                comm.all_reduce(call(StepKind::kAllReduce), {}, ReduceOp::kAvg,
                                DType::kI32, x, 8);
              }),
              "[all-reduce] the avg of i32 values need not be an integer; cast "
              "to f32 first");
    const std::vector<Region> sources{{{{0, 2}}}, {{{4, 6}}}};
    const std::vector<Region> all(2, Region{{{0, 6}}});
    const testing::Part src{x, {1}, &sources[static_cast<size_t>(me)]};
    float y[6];
    EXPECT_EQ(
        error_of([&] {
          testing::exchange(comm, call(StepKind::kAllGather), {}, DType::kF32,
                            src, sources, {y, {1}, &all[0]}, all);
        }),
        fmt::format("[all-gather] member {} needs [2, 4), but none of the 2 "
                    "members has it, which is an error in dtensor; report it",
                    me));
    // Passes a schedule of another member, null memory, and too many strides.
    Schedule s = exchange_schedule(sources[1], sources, 1, "x");
    auto exchange = [&](const void* from, Shape strides) {
      return error_of([&] {
        Transfer t{&s, DType::kF32, from, strides, y, {1}};
        comm.exchange(call(StepKind::kExchange), {}, {&t, 1});
      });
    };
    if (me == 0) {
      EXPECT_EQ(exchange(x, {1}),
                "[exchange] a schedule for member 1 of 2 was given to member 0 "
                "of 2; pass each member its own");
    } else {
      EXPECT_EQ(exchange(nullptr, {1}),
                "[exchange] the source of 2 elements is null; pass its memory");
      EXPECT_EQ(exchange(x, {1, 1}),
                "[exchange] the number of strides is 2, but that of "
                "dimensions is 1; pass one stride for each dimension");
    }
    EXPECT_EQ(error_of([&] {
                comm.all_reduce(call(StepKind::kAllReduce), {}, ReduceOp::kSum,
                                DType::kF32, nullptr, 8);
              }),
              "[all-reduce] the buffer of 8 elements is null; pass its memory");
    comm.barrier(call(StepKind::kBarrier));
  });
}

}  // namespace
}  // namespace dtensor
