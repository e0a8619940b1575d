// SPDX-License-Identifier: Apache-2.0
// Tests which calls of attention cuDNN gets, and as what graph. It needs
// neither cuDNN nor a GPU.
#include "dtensor/ops/kernels/cuda/attention_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

namespace dtensor::kernels::cuda {
namespace {

constexpr Cudnn kHopper = {91900, 9}, kAmpere = {91900, 8},
                kDeterministic = {91900, 9, true};

std::array<int64_t, 4> bshd(int64_t h, int64_t s, int64_t d) {
  return {h * s * d, d, h * d, 1};
}

// A call with operands in [b, s, h, d]. Its memory is not read.
struct Call {
  Attention a{.type = DType::kBF16};
  AttentionBackward g;
  std::array<int64_t, 4> out_strides;
  alignas(16) static inline char memory[32];

  Call(int64_t b, int64_t hq, int64_t hkv, int64_t s, int64_t t, int64_t d) {
    a.b = b, a.hq = hq, a.hkv = hkv, a.s = s, a.t = t, a.d = d;
    a.q = g.out = g.dout = {memory, bshd(hq, s, d)};
    a.k = a.v = {memory, bshd(hkv, t, d)};
    g.dq = {memory, bshd(hq, s, d)};
    g.dk = g.dv = {memory, bshd(hkv, t, d)};
    g.lse = memory;
    out_strides = bshd(hq, s, d);
  }
  Call& causal(int64_t offset) {
    a.causal = true;
    a.query_offset = offset;
    return *this;
  }
  std::optional<AttentionGraph> forward(Cudnn c = kHopper) const {
    return attention_graph(
        c, AttentionForward{.of = a,
                            .out = {const_cast<void*>(g.out.data), out_strides},
                            .lse = const_cast<void*>(g.lse)});
  }
  std::optional<AttentionGraph> backward(Cudnn c = kHopper) const {
    AttentionBackward call = g;
    call.of = a;
    return attention_graph(c, call);
  }
};

Call usual() { return Call(2, 8, 2, 256, 256, 64).causal(0); }

TEST(AttentionCallsTest, TakesWhatModelsDo) {
  const Call c = usual();
  const auto f = c.forward(), b = c.backward();
  ASSERT_TRUE(f && b);
  EXPECT_FALSE(f->backward);
  EXPECT_TRUE(b->backward);
  for (const auto& g : {*f, *b}) {
    EXPECT_EQ(g.diagonal, Diagonal::kTopLeft);
    EXPECT_EQ(g.scale, 1);
    EXPECT_EQ(std::vector({g.b, g.hq, g.hkv, g.s, g.t, g.d}),
              (std::vector<int64_t>{2, 8, 2, 256, 256, 64}));
    for (int o : {g.kQ, g.kOut})
      EXPECT_TRUE(std::ranges::equal(g.strides[o], c.a.q.strides));
    for (int o : {g.kK, g.kV})
      EXPECT_TRUE(std::ranges::equal(g.strides[o], c.a.k.strides));
  }
  for (int o : {AttentionGraph::kDOut, AttentionGraph::kDQ}) {
    EXPECT_EQ(f->strides[o][3], 0);
    EXPECT_TRUE(std::ranges::equal(b->strides[o], c.a.q.strides));
  }
  for (int o : {AttentionGraph::kDK, AttentionGraph::kDV})
    EXPECT_TRUE(std::ranges::equal(b->strides[o], c.a.k.strides));
}

TEST(AttentionCallsTest, LeavesTheRest) {
  using Change = std::function<void(Call&)>;
  const int turned[] = {0, 0, 0, 0, 1, 1, 1, 0};
  const std::pair<const char*, Change> both[] = {
      {"f32", [](Call& c) { c.a.type = DType::kF32; }},
      {"f64", [](Call& c) { c.a.type = DType::kF64; }},
      {"a mask", [](Call& c) { c.a.mask.data = c.memory; }},
      {"a window", [](Call& c) { c.a.window = 100; }},
      {"a soft cap", [](Call& c) { c.a.soft_cap = 50; }},
      {"heads that share none evenly", [](Call& c) { c.a.hkv = 3; }},
      {"other heads", [&](Call& c) { c.a.kv_head = turned; }},
      {"d of 60", [](Call& c) { c = Call(2, 8, 2, 256, 256, 60); }},
      {"60 of rows of 64", [](Call& c) { c.a.d = 60; }},
      {"d of 264", [](Call& c) { c = Call(2, 8, 2, 256, 256, 264); }},
      {"no query", [](Call& c) { c.a.s = 0; }},
      {"no key", [](Call& c) { c.a.t = 0; }},
      {"more batches than a grid has",
       [](Call& c) { c = Call(65536, 8, 2, 16, 16, 8); }},
      {"more heads than a grid has",
       [](Call& c) { c = Call(1, 65536, 65536, 16, 16, 8); }},
      {"no batch", [](Call& c) { c.a.b = 0; }},
      {"no head", [](Call& c) { c.a.hq = 0; }},
      {"no head of k", [](Call& c) { c.a.hkv = 0; }},
      {"a query without keys", [](Call& c) { c.causal(-1); }},
      {"a diagonal beyond the corner",
       [](Call& c) { (c = Call(2, 8, 2, 256, 256, 64)).causal(100); }},
      {"a scale of 0", [](Call& c) { c.a.scale = 0; }},
      {"a negative scale", [](Call& c) { c.a.scale = -1; }},
      {"an infinite scale", [](Call& c) { c.a.scale = INFINITY; }},
      {"a scale that no float has", [](Call& c) { c.a.scale = 1e300; }},
      {"q apart", [](Call& c) { c.a.q.data = c.memory + 8; }},
      {"k apart", [](Call& c) { c.a.k.data = c.memory + 8; }},
      {"v apart", [](Call& c) { c.a.v.data = c.memory + 8; }},
      {"lse apart", [](Call& c) { c.g.lse = c.memory + 4; }},
      {"out apart", [](Call& c) { c.g.out.data = c.memory + 8; }},
      {"repeated batches", [](Call& c) { c.a.q.strides[0] = 0; }},
      {"turned heads", [](Call& c) { c.a.k.strides[1] = -64; }},
      {"rows of odd strides", [](Call& c) { c.a.v.strides[2] = 132; }},
      {"columns", [](Call& c) { c.a.q.strides[3] = 8; }},
  };
  for (const auto& [what, change] : both) {
    SCOPED_TRACE(what);
    Call c = usual();
    change(c);
    EXPECT_FALSE(c.forward());
    EXPECT_FALSE(c.backward());
  }
  Call out = usual();
  out.out_strides[2] += 4;
  EXPECT_FALSE(out.forward());
  const std::pair<const char*, Change> backward[] = {
      {"dout apart", [](Call& c) { c.g.dout.data = c.memory + 8; }},
      {"dq apart", [](Call& c) { c.g.dq.data = c.memory + 8; }},
      {"dk apart", [](Call& c) { c.g.dk.data = c.memory + 8; }},
      {"dv apart", [](Call& c) { c.g.dv.data = c.memory + 8; }},
      {"repeated dout", [](Call& c) { c.g.dout.strides[2] = 0; }},
      {"odd out", [](Call& c) { c.g.out.strides[2] += 4; }},
      {"odd dq", [](Call& c) { c.g.dq.strides[2] += 4; }},
      {"odd dk", [](Call& c) { c.g.dk.strides[2] += 4; }},
      {"odd dv", [](Call& c) { c.g.dv.strides[2] += 4; }},
      {"one query", [](Call& c) { c = Call(2, 8, 2, 1, 256, 64); }},
      {"one key", [](Call& c) { c = Call(2, 8, 2, 256, 1, 64); }},
  };
  for (const auto& [what, change] : backward) {
    SCOPED_TRACE(what);
    Call c = usual();
    change(c);
    EXPECT_TRUE(c.forward());
    EXPECT_FALSE(c.backward());
  }
}

TEST(AttentionCallsTest, LeavesWhatTheGpuOrTheVersionCannot) {
  EXPECT_TRUE(usual().backward({90600, 8}));
  EXPECT_FALSE(usual().forward({90501, 8}));
  EXPECT_FALSE(usual().forward({91900, 7}));
  const Call wide(2, 8, 2, 256, 256, 256);
  EXPECT_TRUE(wide.forward(kHopper) && wide.backward(kHopper));
  for (int compute : {8, 10, 12}) {
    EXPECT_FALSE(wide.forward({91900, compute}));
    EXPECT_TRUE(Call(2, 8, 2, 256, 256, 128).forward({91900, compute}));
  }
}

TEST(AttentionCallsTest, LeavesHopperNoUncoveredHalfOfKeys) {
  for (int64_t t : {64, 192, 1088}) {
    const Call all(2, 4, 4, t, t, 64);
    EXPECT_TRUE(all.forward());
    EXPECT_FALSE(all.backward(kHopper)) << t;
    EXPECT_TRUE(all.backward(kAmpere)) << t;
    // A diagonal covers the half tile of keys, unless more queries follow
    // below.
    EXPECT_TRUE(Call(2, 4, 4, t, t, 64).causal(0).backward()) << t;
    EXPECT_TRUE(Call(2, 4, 4, t - 8, t, 64).causal(8).backward()) << t;
    EXPECT_FALSE(Call(2, 4, 4, t + 8, t, 64).causal(0).backward()) << t;
  }
  for (int64_t t : {63, 100, 128, 256, 1000})
    EXPECT_TRUE(Call(2, 4, 4, t, t, 64).backward()) << t;
}

TEST(AttentionCallsTest, TakesGroupsThatAreNamed) {
  const int grouped[] = {0, 0, 0, 0, 1, 1, 1, 1};
  Call c = usual();
  c.a.kv_head = grouped;
  EXPECT_EQ(c.forward(), usual().forward());
}

// Each query sees the same keys in the graph as in the call.
TEST(AttentionCallsTest, DiagonalsAreTheCalls) {
  int taken = 0;
  for (int64_t s : {1, 2, 3, 7})
    for (int64_t t : {1, 2, 3, 7, 11})
      for (int64_t offset = -2; offset < 13; ++offset) {
        SCOPED_TRACE("s " + std::to_string(s) + " t " + std::to_string(t) +
                     " offset " + std::to_string(offset));
        const auto g = Call(1, 1, 1, s, t, 8).causal(offset).forward();
        // A query has no key, or the diagonal meets no corner of the keys that
        // are seen.
        const bool inside = offset > 0 && offset < t - 1 && s + offset > t;
        ASSERT_EQ(g.has_value(), offset >= 0 && !inside);
        if (!g) continue;
        ++taken;
        ASSERT_LE(g->t, t);
        for (int64_t i = 0; i < s; ++i)
          for (int64_t j = 0; j < t; ++j) {
            const bool sees = g->diagonal == Diagonal::kNone ? j < g->t
                              : g->diagonal == Diagonal::kTopLeft
                                  ? j <= i
                                  : j <= i + g->t - s;
            EXPECT_EQ(sees && j < g->t, j <= i + offset) << i << ", " << j;
          }
        // cuDNN's rule, and its advice for one query.
        EXPECT_TRUE(g->diagonal != Diagonal::kBottomRight || s < g->t);
        EXPECT_TRUE(g->diagonal == Diagonal::kNone || s > 1);
      }
  EXPECT_GT(taken, 150);
}

TEST(AttentionCallsTest, StridesThatSayNothingMakeNoOtherGraph) {
  Call c(1, 4, 1, 1, 256, 64);
  const auto g = c.forward();
  ASSERT_TRUE(g);
  c.a.q.strides[0] = 3, c.a.q.strides[2] = 0, c.a.k.strides[0] = -1;
  c.a.v.strides[1] = 7;
  EXPECT_EQ(c.forward(), g);
  const int64_t q[] = {256, 64, 64, 1}, k[] = {16384, 16384, 64, 1};
  EXPECT_TRUE(std::ranges::equal(g->strides[g->kQ], q));
  EXPECT_TRUE(std::ranges::equal(g->strides[g->kK], k));

  Call one(2, 4, 1, 256, 384, 64);
  const auto b = one.backward();
  ASSERT_TRUE(b);
  one.g.dk.strides[1] = one.g.dv.strides[1] = 5;
  EXPECT_EQ(one.backward(), b);
}

TEST(AttentionCallsTest, EachPartOfTheCallIsInTheGraph) {
  const std::function<void(Call&)> changes[] = {
      [](Call&) {},
      [](Call& c) { c.a.scale = 0.5; },
      [](Call& c) { c.a.causal = false; },
      [](Call& c) { c.a.b = 1; },
      [](Call& c) { c.a.hq = 4; },
      [](Call& c) { c.a.hkv = 4; },
      [](Call& c) { c.a.d = 32; },
      [](Call& c) { c.a.s = 128; },
      [](Call& c) { c.a.v.strides[2] += 8; },
      [](Call& c) { c.g.dv.strides[2] += 8; },
  };
  std::vector<AttentionGraph> graphs;
  for (const auto& change : changes) {
    Call c = usual();
    change(c);
    const auto g = c.backward();
    ASSERT_TRUE(g);
    EXPECT_EQ(std::ranges::count(graphs, *g), 0) << graphs.size();
    graphs.push_back(*g);
  }
  EXPECT_NE(usual().backward(kDeterministic), graphs[0]);
}

TEST(AttentionCallsTest, BackwardRunsInPartsThatFit) {
  struct {
    int64_t b, hq, hkv, s, at_once_b, at_once_hkv;  // 0: not at all
  } const cases[] = {
      {2, 8, 2, 256, 2, 2},     // 2 MiB
      {8, 32, 8, 4096, 1, 8},   // 1 GiB of each batch
      {12, 32, 8, 2048, 4, 8},  // 256 MiB of each: 4 of 12
      {7, 32, 8, 2048, 1, 8},   // 4 would fit, 7 has no such part
      {2, 32, 8, 8192, 1, 2},   // 512 MiB of each group
      {1, 32, 8, 16384, 1, 1},  // 2 GiB of each group
      {1, 32, 8, 32768, 1, 1},  // 8 GiB
      {1, 32, 8, 32769, 0, 0},  // more
      {35, 1, 1, 4099, 0, 0},   // parts whose lse is not aligned
      {35, 4, 4, 4099, 7, 4},   // and is
  };
  for (const auto& x : cases) {
    SCOPED_TRACE("b " + std::to_string(x.b) + " s " + std::to_string(x.s));
    const auto g =
        Call(x.b, x.hq, x.hkv, x.s, x.s, 64).causal(0).backward(kDeterministic);
    ASSERT_EQ(g.has_value(), x.at_once_b > 0);
    if (!g) continue;
    EXPECT_EQ(g->b, x.at_once_b);
    EXPECT_EQ(g->hkv, x.at_once_hkv);
    EXPECT_EQ(g->hq * x.hkv, g->hkv * x.hq);
    for (const bool back : {false, true}) {
      const Call c = Call(x.b, x.hq, x.hkv, x.s, x.s, 64).causal(0);
      const auto whole = back ? c.backward() : c.forward();
      ASSERT_TRUE(whole);
      EXPECT_EQ(whole->b, x.b);
      EXPECT_EQ(whole->hkv, x.hkv);
    }
  }
}

// cuDNN computes whole tiles of 64 queries and 128 keys.
TEST(AttentionCallsTest, BackwardRunsAreOfTiles) {
  struct {
    int64_t s, t, at_once;
  } const cases[] = {{7232, 8192, 9}, {7280, 8192, 3}, {8192, 7280, 3}};
  for (const auto& x : cases) {
    const auto g = Call(1, 9, 9, x.s, x.t, 64).backward(kDeterministic);
    ASSERT_TRUE(g) << x.s;
    EXPECT_EQ(g->hkv, x.at_once) << x.s;
  }
}

TEST(AttentionCallsTest, KnowsWhatMeansNoKernel) {
  EXPECT_TRUE(says_not_supported(
      "x failed with code: CUDNN_STATUS_NOT_SUPPORTED_SHAPE"));
  EXPECT_TRUE(says_not_supported("No valid engine configs for Matmul_"));
  EXPECT_FALSE(says_not_supported("CUDNN_STATUS_EXECUTION_FAILED"));
  EXPECT_FALSE(says_not_supported("CUDNN_STATUS_INTERNAL_ERROR"));
  for (const char* installation :
       {"CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING",
        "CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE",
        "CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER",
        "CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDART"})
    EXPECT_FALSE(says_not_supported(installation)) << installation;
}

}  // namespace
}  // namespace dtensor::kernels::cuda
