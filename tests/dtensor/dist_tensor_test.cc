// SPDX-License-Identifier: Apache-2.0
// Guards against these faults: an undefined Tensor given to from_global() ended
// the process; from_local() refused a rank outside of the mesh; item() and
// to_string() rounded integers; a loop over region()[0] read freed memory.
#include <gtest/gtest.h>

#include <set>

#include "dtensor/autograd.h"
#include "dtensor/comm_event.h"
#include "dtensor/dist_tensor_impl.h"
#include "dtensor/nn/optimizers.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"
#include "dtensor/runtime.h"
#include "dtensor/scopes.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

Tensor integers(const Shape& shape, std::vector<int64_t> v) {
  return Tensor::from<int64_t>(shape, v.data());
}

TEST(DistTensorEdges, AnUndefinedTensorIsAnError) {
  const Mesh m = Mesh::parse("a=1");
  run(1, [&](Runtime&) {
    EXPECT_THROW(DistTensor::from_global(Tensor(), m, {}), Error);
    EXPECT_THROW(DistTensor::from_local(Tensor(), m, {}, {2}), Error);
  });
}

TEST(DistTensorEdges, AnEmptyMeshIsAnError) {
  const std::string kNoMesh =
      "[spec] a tensor needs a mesh, but this one is empty; pass a mesh with "
      "axes, such as Mesh::parse(\"dp=2\")";
  run(1, [&](Runtime&) {
    for (const Placements& p :
         {Placements(), Placements("S0"), Placements({{"a", Shard(0)}})})
      EXPECT_EQ(testing::error_of([&] {
                  DistTensor::from_local(Tensor::full({2}, DType::kF32, 3),
                                         Mesh(), p, {2});
                }),
                kNoMesh);
    const DistTensor x = DistTensor::from_local(
        Tensor::full({2}, DType::kF32, 3), Mesh::parse("a=1"), "S0", {2});
    for (bool assign : {false, true})
      EXPECT_EQ(testing::error_of([&] {
                  x.redistribute(Mesh(), "S0", {.assign_ranks = assign});
                }),
                kNoMesh);
  });
}

TEST(DistTensorEdges, ABlockHasAnElement) {
  const Mesh m = Mesh::parse("a=2,b=2");
  run(4, [&](Runtime&) {
    for (int64_t granule : {-3, 0})
      for (const Placements& p :
           {Placements({{"a", Shard(0, granule)}}),
            Placements({{"a", Shard(0, 3)}, {"b", Shard(-1, granule)}})})
        EXPECT_EQ(
            testing::error_of([&] { zeros({12}, m, p); }),
            fmt::format("[layout] the blocks of dimension 0 have {} indices; "
                        "write Shard(0) or Shard(0, n) with n of 1 or more",
                        granule));
  });
}

TEST(DistTensorEdges, APartOutsideOfTheMeshIsNone) {
  const Mesh m = Mesh::parse("a=2");
  run(3, [&](Runtime& rt) {
    const Tensor part = Tensor::full({1}, DType::kF32, 3);
    const DistTensor x = DistTensor::from_local(part, m, "S0", {2});
    EXPECT_EQ(x.here(), rt.rank() < 2);
    EXPECT_EQ(x.spec()->to_string(), "f32[2](S0)");
    const DistTensor all = x.redistribute(Mesh::parse("b=3"), "R");
    EXPECT_EQ(all.to_string(), "f32[2](R) [3, 3]");
  });
}

// Guards a fix: a rank that left the mesh kept its part if it had nothing to
// send.
TEST(DistTensorEdges, WhoLeavesTheMeshKeepsNoPart) {
  const Mesh from = Mesh::parse("a=3"), to = Mesh::parse("a=2 of ranks 2,0");
  run(3, [&](Runtime& rt) {
    const DistTensor x = full({4}, 2, from), y = full({6}, 2, from, "S0");
    const SpecRef specs[] = {Spec::replicated(to, {4}, DType::kF32),
                             Spec::replicated(to, {6}, DType::kF32)};
    std::vector<DistTensor> both{x, y};
    relayout(both, specs);
    for (const DistTensor& z :
         {x.redistribute(to, "R"), x.redistribute_async(to, "R"),
          x.redistribute(to, "S0"), both[0]})
      EXPECT_EQ(z.impl()->part().defined(), rt.rank() != 1);
  });
}

// Guards a fix: a loop over region()[0] read memory that was freed.
TEST(DistTensorEdges, TheRegionOfATemporaryLives) {
  const Mesh m = Mesh::parse("a=2");
  run(3, [&](Runtime& rt) {
    const DistTensor x = full({6, 4}, 1, m, "S0");
    if (!m.contains(rt.rank())) {
      const std::string want =
          "[region] rank 2 of the run is not in mesh a=2; make this call on "
          "the "
          "ranks of that mesh only: if (mesh.contains(rt.rank()))";
      EXPECT_EQ(testing::error_of([&] { x.region(); }), want);
      EXPECT_EQ(testing::error_of([&] { x.region(0); }), want);
      return;
    }
    const int64_t first = 3 * rt.rank();
    const IntervalList rows{{first, first + 3}}, columns{{0, 4}};
    for (auto& [lo, hi] : x.region()[0]) {
      EXPECT_EQ(lo, first);
      EXPECT_EQ(hi, first + 3);
    }
    EXPECT_EQ(x.region(0), rows);
    EXPECT_EQ(x.region(-1), columns);
    EXPECT_EQ(x.region(), (Region{rows, columns}));
    EXPECT_THROW(x.region(2), Error);
  });
}

TEST(DistTensorEdges, IntegersAreExact) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const int64_t large = 9007199254740993;  // 2^53 + 1
    const auto one = [&](int64_t v) {
      return DistTensor::from_global(integers({1}, {v}), m, "S0");
    };
    EXPECT_EQ(one(large).item<int64_t>(), large);
    EXPECT_EQ(one(-5).item(), -5.0);
    EXPECT_EQ(one(-5).item<int32_t>(), -5);
    EXPECT_EQ(one(large - 1).item(), 9007199254740992.0);
    EXPECT_THROW(one(large).item(), Error);
    EXPECT_THROW(one(large).item<int32_t>(), Error);
    EXPECT_THROW(one(INT64_MAX).item(), Error);
    EXPECT_EQ(one(INT64_MAX).item<int64_t>(), INT64_MAX);
    EXPECT_TRUE(one(large).item<bool>());
    EXPECT_EQ(full({}, 0.5, m).item<float>(), 0.5f);
    EXPECT_EQ(
        DistTensor::from_global(integers({3}, {16777217, large, -7}), m, {})
            .to_string(),
        "i64[3](R) [16777217, 9007199254740993, -7]");
  });
}

// Guards a fix: redistribute() returned a view of its source, or the copy that
// the source keeps for its next consumer, or the result of the previous call. A
// write to one of these tensors changed the others, and they shared gradients
// and flags.

constexpr DType kF64 = DType::kF64;

void expect_all(const DistTensor& x, double value, const std::string& what) {
  const Tensor t = x.full();
  for (int64_t i = 0; i < t.numel(); ++i)
    EXPECT_EQ(t.at(i), value) << what << ", element " << i;
}

// Pairs of layouts: some moves send data, some only slice, and some do nothing.
const std::pair<const char*, const char*> kMoves[] = {
    {"S1", "S0"}, {"S0", "R"},  {"R", "S0"}, {"R", "S1"},
    {"R", "R"},   {"S0", "S0"}, {"R", "P"},  {"P", "R"}};

TEST(RedistributeAliases, TwoParametersOfOneTensorAreTwo) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    for (const auto& [from, to] : kMoves) {
      if (std::string(to) == "P") continue;
      const std::string what = std::string(from) + " -> " + to;
      const DistTensor x = ones({2, 2}, m, from, kF64);
      DistTensor w1 = x.redistribute(to), w2 = x.redistribute(to);
      w1.as_parameter();
      EXPECT_FALSE(x.requires_grad()) << what;
      EXPECT_FALSE(w2.requires_grad()) << what;
      w2.as_parameter();
      nn::SGD opt({w1, w2});
      const auto g = grad(sum(w1 * 2.0) + sum(w2 * 3.0), {w1, w2});
      opt.step(g, {.lr = 1});
      expect_all(w1, -1, what);
      expect_all(w2, -2, what);
      expect_all(x, 1, what);
      expect_all(x.redistribute(to), 1, what);
    }
  });
}

TEST(RedistributeAliases, AWriteStaysWhereItWasMade) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    for (const auto& [from, to] : kMoves) {
      const std::string what = std::string(from) + " -> " + to;
      const DistTensor x = ones({2, 2}, m, from, kF64);
      // With `used`, an operator has already made a copy of x in that layout.
      for (bool used : {false, true}) {
        const DistTensor there = zeros({2, 2}, m, to, kF64);
        if (used) expect_all(add(there, x), 1, what);
        DistTensor y = x.redistribute(to), z = x.redistribute(to);
        y.assign(Tensor::full(y.local().shape(), kF64, 7));
        expect_all(x, 1, what);
        expect_all(z, 1, what);
        expect_all(add(there, x), 1, what);
        expect_all(x.redistribute(to), 1, what);
      }
      // A write to the source does not change an earlier result.
      DistTensor source = ones({2, 2}, m, from, kF64);
      const DistTensor before = source.redistribute(to);
      source.assign(Tensor::full(source.local().shape(), kF64, 5));
      expect_all(before, 1, what);
    }
  });
}

// The test changes the copies of x that an operator made for later operators.
TEST(RedistributeAliases, TheCopyOfAnOperatorIsNotTakenAgainWhenItWasChanged) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const DistTensor x = ones({2, 2}, m, "S1", kF64);
    const DistTensor zero = zeros({2, 2}, m, "S0", kF64);
    expect_all(add(zero, x), 1, "before");
    for (auto& copy : x.impl()->copies) copy.tensor.impl()->local.fill(9);
    expect_all(add(zero, x), 1, "after");
  });
}

TEST(RedistributeAliases, EachHasAGradientOfItsOwn) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    for (const auto& [from, to] : kMoves) {
      const std::string what = std::string(from) + " -> " + to;
      DistTensor x = ones({2, 2}, m, from, kF64).set_requires_grad();
      const DistTensor y1 = x.redistribute(to), y2 = x.redistribute(to);
      const auto g = grad(sum(y1 * 2.0 + y2 * 3.0), {y1, y2, x});
      expect_all(g[0], 2, what);
      expect_all(g[1], 3, what);
      expect_all(g[2], 5, what);
    }
  });
}

TEST(RedistributeAliases, AsynchronousResultsToo) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const DistTensor x = ones({2, 2}, m, "S1", kF64);
    DistTensor y = x.redistribute_async("S0"), z = x.redistribute_async("S0");
    y.assign(Tensor::full(y.local().shape(), kF64, 7));
    expect_all(z, 1, "another result");
    expect_all(x.redistribute("S0"), 1, "a later one");
    expect_all(y, 7, "itself");
  });
}

// A part that is sliced out of its source has memory of just its size, without
// gaps, so that optimizers accept it.
TEST(RedistributeAliases, APartThatWasCutOutIsContiguous) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const DistTensor w = ones({4, 4}, m, {}, kF64).redistribute("S1");
    EXPECT_TRUE(w.local().contiguous());
    EXPECT_EQ(w.local().storage()->bytes(), 64);
  });
}

// The weights of a trainer go to an engine's mesh in one exchange.
TEST(Redistribute, SeveralTensorsToAnotherMesh) {
  run(5, [](Runtime& rt) {
    const Mesh from({{"dp", 2}, {"tp", 2}}), to({{"tp", 3}}, {4, 1, 0});
    std::vector<DistTensor> x;
    std::vector<Placements> layouts;
    for (int i = 0; i < 21; ++i) {
      x.push_back(randn({5 + i, 4}, from, i % 2 ? "S0,S1" : "R,S0", DType::kF64,
                        {1, static_cast<uint64_t>(i)})
                      .set_requires_grad());
      layouts.push_back(i % 3 ? "S0" : "S1");
    }
    const CommRecord record;
    const std::vector<DistTensor> y = redistribute(x, to, layouts);
    std::set<int64_t> collectives;
    for (const CommEvent& e : record.events()) collectives.insert(e.collective);
    EXPECT_EQ(collectives.size(), 1u);
    for (size_t i = 0; i < x.size(); ++i) {
      const DistTensor one = x[i].redistribute(to, layouts[i]);
      EXPECT_EQ(y[i].spec(), one.spec());
      if (to.contains(rt.rank())) {
        EXPECT_EQ(y[i].local().to_doubles(), one.local().to_doubles());
      }
      // The gradient comes back to the layout of the source.
      const DistTensor g = grad(sum(y[i] * y[i]), x[i])[0];
      EXPECT_EQ(g.spec(), x[i].spec());
      if (from.contains(rt.rank())) {
        EXPECT_EQ(g.local().to_doubles(), (x[i] * 2).local().to_doubles());
      }
    }
    // Writing to a result does not change the source.
    const std::vector<DistTensor> same =
        redistribute({x[0], x[0]}, from, {"R,S0", "R,S0"});
    const NoGrad no_grad;
    if (from.contains(rt.rank())) {
      const std::vector<double> before = x[0].local().to_doubles();
      DistTensor(same[0]).assign(
          Tensor::full(x[0].local().shape(), DType::kF64, 0));
      EXPECT_EQ(x[0].local().to_doubles(), before);
      EXPECT_EQ(same[1].local().to_doubles(), before);
    }
    EXPECT_EQ(testing::error_of([&] { redistribute(x, to, {"S0"}); }),
              "[redistribute] 1 layouts are given for 21 tensors; give one for "
              "each");
  });
}

TEST(Placements, ZigZag) {
  run(3, [](Runtime& rt) {
    const Mesh m({{"dp", 1}, {"cp", 3}});
    const DistTensor x = arange(13, m, {{"cp", ZigZag(0)}});
    // Chunks [0,2) [2,4) [4,6) [6,8) [8,10) [10,13).
    const std::vector<std::vector<double>> want = {
        {0, 1, 10, 11, 12}, {2, 3, 8, 9}, {4, 5, 6, 7}};
    EXPECT_EQ(x.local().to_doubles(), want[static_cast<size_t>(rt.rank())]);
    EXPECT_EQ(x.redistribute({{"cp", Shard(0)}}).full().to_doubles(),
              x.full().to_doubles());
    EXPECT_NE(
        testing::error_of([&] {
          arange(13, m, {{"dp", Shard(0)}, {"cp", ZigZag(0)}});
        }).find("2 axes split dimension 0, one of them by ZigZag() or Owned()"),
        std::string::npos);
  });
}

TEST(Placements, Owned) {
  run(3, [](Runtime& rt) {
    const Mesh m({{"x", 3}});
    const DistTensor x = arange(12, m), w = reshape(x, {4, 3});
    for (int64_t owner : {0, 1, 2}) {
      const DistTensor one = w.redistribute({{"x", Owned(owner)}});
      EXPECT_EQ(one.local().numel(), rt.rank() == owner ? 12 : 0);
      EXPECT_EQ(one.full().to_doubles(), x.full().to_doubles());
      const DistTensor columns = w.redistribute({{"x", Owned(owner, 1)}});
      EXPECT_EQ(columns.local().numel(), rt.rank() == owner ? 12 : 0);
      EXPECT_EQ(sum(columns).item(), 66);
    }
    EXPECT_EQ(testing::error_of([&] {
                w.redistribute({{"x", Owned(3)}});
              }),
              "[layout] axis x has no rank 3; write Owned() of 0 to 2");
  });
}

}  // namespace
}  // namespace dtensor
