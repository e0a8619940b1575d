// SPDX-License-Identifier: Apache-2.0
// Tensors that move between two meshes of one run.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "dtensor/ops/pointwise.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"
#include "dtensor/runtime.h"
#include "tests/placement/indices.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;

using testing::indices;

// 0, 1, 2, ... in row-major order.
Tensor counting(const Shape& shape) {
  Tensor t = Tensor::empty(shape, DType::kI64);
  for (int64_t i = 0; t.data() && i < t.numel(); ++i)
    t.mutable_ptr<int64_t>()[i] = i;
  return t;
}

void expect_counting(const DistTensor& x) {
  const std::vector<int64_t> want = indices(x.region(), x.shape());
  const Tensor got = x.local().to_contiguous();
  ASSERT_EQ(got.numel(), static_cast<int64_t>(want.size()));
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_EQ(got.ptr<int64_t>()[i], want[i]);
}

struct Pair {
  Mesh from, to;
};

std::vector<Pair> pairs() {
  const Mesh two = Mesh::parse("a=2"), four = Mesh::parse("a=2,b=2");
  return {
      {two, Mesh({{"x", 2}}, {2, 3})},                   // disjoint
      {two, Mesh({{"x", 3}}, {1, 2, 4})},                // overlapping
      {four, Mesh({{"x", 2}, {"y", 2}}, {3, 2, 1, 0})},  // permuted
      {four, Mesh({{"x", 4}})},                          // another shape
      {four, Mesh({{"x", 1}}, {4})},                     // one rank
      {Mesh({{"x", 3}}, {4, 0, 2}), Mesh({{"y", 5}})},   // larger
  };
}

TEST(CrossMesh, EveryLayoutToEveryOther) {
  const Shape shape{5, 4};
  run(5, [&](Runtime& rt) {
    const std::vector<const char*> one{"R", "S0", "S1"};
    const std::vector<const char*> both{"R,R",   "S0,R",  "R,S1",
                                        "S0,S0", "S1,S0", "S0,S1"};
    for (const Pair& p : pairs()) {
      const auto& from = p.from.num_axes() == 1 ? one : both;
      const auto& to = p.to.num_axes() == 1 ? one : both;
      for (const char* a : from)
        for (const char* b : to) {
          SCOPED_TRACE(p.from.to_string() + " " + a + " -> " +
                       p.to.to_string() + " " + b);
          const DistTensor x =
              DistTensor::from_global(counting(shape), p.from, a);
          EXPECT_EQ(x.here(), p.from.mesh_rank_of(rt.rank()) >= 0);
          const DistTensor y = x.redistribute(p.to, b);
          EXPECT_EQ(y.mesh(), p.to);
          EXPECT_EQ(y.here(), p.to.mesh_rank_of(rt.rank()) >= 0);
          EXPECT_EQ(y.shape(), shape);
          if (y.here()) expect_counting(y);
          // And back.
          const DistTensor z = y.redistribute(p.from, a);
          if (z.here()) expect_counting(z);
        }
    }
  });
}

// The dimension has a segment that `a` splits and one that every rank has
// whole: several ranks can send an index of the latter, and several ranks ask
// for it.
TEST(CrossMesh, SegmentsThatSeveralRanksHave) {
  const Mesh from = Mesh::parse("a=2,b=2");
  run(7, [&](Runtime&) {
    for (const int64_t split : {1, 4, 7})
      for (const int64_t whole : {1, 3, 6})
        for (const Mesh& to :
             {Mesh({{"x", 3}}, {4, 5, 6}), Mesh({{"x", 4}}, {3, 4, 0, 6}),
              Mesh({{"x", 1}}, {5}), Mesh({{"x", 7}})})
          for (const char* text : {"R", "S0"}) {
            SCOPED_TRACE(std::to_string(split) + "|" + std::to_string(whole) +
                         " to " + to.to_string() + " " + text);
            Layout l;
            l.dims = {Dim::concat({Dim(split, Split::over({0})), Dim(whole)})};
            const DistTensor x =
                DistTensor::from_global(counting({split + whole}), from, {});
            const DistTensor y = x.redistribute(from, l).redistribute(to, text);
            if (y.here()) expect_counting(y);
          }
  });
}

// The bytes that are counted while copying are the planned ones, and those are
// the lower bound: no rank receives what it has.
TEST(CrossMesh, MovesWhatIsMissingAndNoMore) {
  const Shape shape{6, 4};
  std::mutex mutex;
  std::map<size_t, int64_t> counted, predicted;
  std::vector<int64_t> bounds;
  std::set<int64_t> took_part;
  run(5, [&](Runtime& rt) {
    RankContext& ctx = rt.context();
    ctx.record = true;
    const std::vector<Pair> all = pairs();
    for (size_t i = 0; i < all.size(); ++i) {
      const Pair& p = all[i];
      const char* a = p.from.num_axes() == 1 ? "S0" : "S0,S1";
      const char* b = p.to.num_axes() == 1 ? "S1" : "S1,S0";
      const DistTensor x = DistTensor::from_global(counting(shape), p.from, a);
      ctx.events.clear();
      const DistTensor y = x.redistribute(p.to, b);
      std::lock_guard lock(mutex);
      if (rt.rank() == 0)
        bounds.push_back(lower_bound_bytes(x.spec(), y.spec()).value());
      for (const CommEvent& e : ctx.events) {
        counted[i] = std::max(counted[i], e.counted);
        predicted[i] = std::max(predicted[i], e.predicted);
        if (i == 0) took_part.insert(rt.rank());
      }
    }
  });
  for (size_t i = 0; i < bounds.size(); ++i) {
    EXPECT_EQ(counted[i], predicted[i]) << i;
    EXPECT_EQ(counted[i], bounds[i]) << i;
  }
  // Rank 4 is in neither mesh and takes no part.
  EXPECT_EQ(took_part, (std::set<int64_t>{0, 1, 2, 3}));
}

TEST(CrossMesh, PartialsAreCombinedWhereTheyAre) {
  const Mesh from = Mesh::parse("a=2,b=2");
  const Mesh to({{"x", 2}}, {3, 4});
  run(5, [&](Runtime& rt) {
    // The summands along b are -4 and 5 times the value, so the sum is the
    // value.
    Tensor part;
    const Spec* spec = Spec::get(
        from, {5, 4}, parse_layout("S0,P", from, {5, 4}), DType::kI64);
    if (from.mesh_rank_of(rt.rank()) >= 0) {
      const Coord at = from.coordinate(from.mesh_rank_of(rt.rank()));
      const auto flat = indices(spec->region(at), {5, 4});
      part = Tensor::empty(spec->local_shape(at), DType::kI64);
      for (size_t i = 0; i < flat.size(); ++i)
        part.mutable_ptr<int64_t>()[i] = flat[i] * (at[1] == 0 ? -4 : 5);
    }
    const DistTensor x = DistTensor::wrap(part, spec);
    const DistTensor y = x.redistribute(to, "S1");
    if (y.here()) expect_counting(y);
    const DistTensor z = x.redistribute(to, "P");
    const DistTensor whole = z.redistribute("R");
    if (z.here()) {
      expect_counting(whole);
      EXPECT_TRUE(z.spec()->partial_axes());
    }
  });
}

TEST(CrossMesh, TheDryRunPredictsTheBytes) {
  const Mesh from = Mesh::parse("a=2"), to({{"x", 2}}, {2, 3});
  std::vector<CommEvent> real, dry;
  for (bool is_dry : {false, true}) {
    RunOptions options;
    options.world = 4;
    options.dry_run = is_dry;
    run(options, [&](Runtime& rt) {
      rt.context().record = true;
      DistTensor::from_global(counting({8, 4}), from, "S0")
          .redistribute(to, "S1");
      if (rt.rank() == 3) (is_dry ? dry : real) = rt.context().events;
    });
  }
  ASSERT_EQ(real.size(), dry.size());
  ASSERT_EQ(real.size(), 1u);
  EXPECT_EQ(real[0].predicted, dry[0].predicted);
  EXPECT_EQ(real[0].counted, 8 * 2 * 8);
}

TEST(CrossMesh, AssigningRanksMovesLeast) {
  const Mesh from = Mesh::parse("a=4");
  const Mesh to({{"x", 4}}, {1, 2, 3, 0});
  std::atomic<int64_t> given{0}, best{0};
  run(4, [&](Runtime& rt) {
    RankContext& ctx = rt.context();
    ctx.record = true;
    const DistTensor x = DistTensor::from_global(counting({8, 3}), from, "S0");
    const DistTensor y = x.redistribute(to, "S0");
    expect_counting(y);
    for (const CommEvent& e : ctx.events) given += e.counted;
    ctx.events.clear();
    RedistributeOptions options;
    options.assign_ranks = true;
    const DistTensor z = x.redistribute(to, "S0", options);
    for (int64_t r = 0; r < 4; ++r) EXPECT_EQ(z.mesh().world_rank(r), r);
    expect_counting(z);
    for (const CommEvent& e : ctx.events) best += e.counted;
  });
  EXPECT_EQ(given, 8 * 3 * 8);
  EXPECT_EQ(best, 0);
}

// A move between meshes needs no memory besides its source and its result, even
// if blocks are far smaller than the tensor.
TEST(CrossMesh, MemoryStaysAtSourceAndDestination) {
  const Mesh from = Mesh::parse("a=2,b=2");
  const Mesh to({{"x", 3}}, {1, 3, 4});
  RunOptions options;
  options.world = 5;
  options.cost.block_bytes = 1024;
  run(options, [&](Runtime& rt) {
    Allocator& allocator = *rt.context().allocator;
    const DistTensor x =
        DistTensor::from_global(counting({60, 64}), from, "S0,S1");
    const int64_t before = allocator.stats().current_bytes;
    allocator.reset_peak();
    const DistTensor y = x.redistribute(to, "S1");
    const int64_t bytes = y.here() ? y.local().bytes() : 0;
    EXPECT_LE(allocator.stats().peak_bytes - before, bytes);
  });
}

// Also if the plan has no step, since the destination's ranks have all.
TEST(CrossMesh, APartOutsideTheDestinationIsUndefined) {
  const Mesh two({{"x", 2}}, {0, 1}), one({{"x", 1}}, {1});
  run(2, [&](Runtime& rt) {
    for (const char* layout : {"R", "S0"}) {
      const Spec* from =
          Spec::get(two, {4}, parse_layout(layout, two, {4}), DType::kI64);
      Tensor local = counting({4});
      if (from->split_axes())
        local = local.slice(0, 2 * rt.rank(), 2 * rt.rank() + 2);
      const Tensor moved = redistribute_local(
          local, from, Spec::replicated(one, {4}, DType::kI64));
      ASSERT_EQ(moved.defined(), rt.rank() == 1) << layout;
      for (int64_t i = 0; moved.defined() && i < 4; ++i)
        EXPECT_EQ(moved.ptr<int64_t>()[i], i) << layout;
    }
  });
}

TEST(CrossMesh, RanksWithoutAPartSaySo) {
  const Mesh mesh({{"a", 2}}, {0, 2});
  run(3, [&](Runtime& rt) {
    const DistTensor x = DistTensor::from_global(counting({4}), mesh, "S0");
    if (rt.rank() != 1) {
      EXPECT_EQ(x.full().at(3), 3);
      return;
    }
    EXPECT_EQ(error_of([&] { x.full(); }),
              "[full] rank 1 of the run is not in mesh a=2 of ranks 0,2, on "
              "which i64[4](S0) lies; call it on the ranks of that mesh only, "
              "or redistribute to a mesh with all ranks");
    for (const auto& fn : std::vector<std::function<void()>>{
             [&] { x.local(); }, [&] { x.region(); },
             [&] { DistTensor(x).assign(counting({2})); },
             [&] { DistTensor::wrap(counting({2}), x.spec()); }}) {
      const std::string m = error_of(fn);
      EXPECT_NE(m.find("rank 1 of the run is not in mesh a=2 of ranks 0,2"),
                m.npos)
          << m;
    }
    // to_string() calls full(), but the error names the function that was
    // called.
    EXPECT_EQ(error_of([&] { x.to_string(); }).find("[to_string] rank 1 of "),
              0u);
    const DistTensor one = DistTensor::from_global(counting({1}), mesh, "R");
    EXPECT_NE(error_of([&] { one.item(); }).find("[item] rank 1"),
              std::string::npos);
  });
}

TEST(CrossMesh, AMeshThatDoesNotFitIsOneSentenceOnEveryRank) {
  const Mesh mesh = Mesh::parse("a=2");
  std::mutex mutex;
  std::set<std::string> messages;
  run(3, [&](Runtime&) {
    const DistTensor x = DistTensor::from_global(counting({4}), mesh, "S0");
    const std::string m = error_of([&] {
      x.redistribute(Mesh({{"x", 2}}, {1, 7}), "S0");
    });
    std::lock_guard lock(mutex);
    messages.insert(m);
  });
  EXPECT_EQ(messages,
            (std::set<std::string>{
                "[redistribute] mesh x=2 of ranks 1,7 needs a run of 8 ranks "
                "or more, but this one has 3; start more ranks, or make a "
                "mesh of ranks below 3"}));
}

TEST(CrossMesh, ATensorOfAnotherRunIsRefused) {
  const Mesh mesh = Mesh::parse("a=2"), to({{"x", 2}}, {1, 0});
  std::vector<DistTensor> kept(2);
  run(2, [&](Runtime& rt) {
    kept[static_cast<size_t>(rt.rank())] =
        DistTensor::from_global(counting({4}), mesh, "S0");
  });
  std::atomic<int> refused{0};
  run(2, [&](Runtime& rt) {
    const DistTensor& x = kept[static_cast<size_t>(rt.rank())];
    for (const auto& fn : std::vector<std::function<void()>>{
             [&] { x.redistribute(to, "S0"); }, [&] { x.redistribute("R"); },
             [&] { x.redistribute_async(to, "S0"); },
             [&] {
               const SpecRef whole = x.spec()->with(Layout::replicated({4}));
               DistTensor y = x;
               relayout({&y, 1}, {&whole, 1});
             }})
      refused +=
          error_of(fn) ==
          "[redistribute] i64[4](S0) belongs to another run(), whose ranks "
          "this run does not reach; save it there and load it here";
  });
  EXPECT_EQ(refused, 8);
}

// Guards a fix: after a move between meshes that sent nothing, ranks outside of
// the first mesh had no part, or a part of another type, if the layout gave
// them no elements.

// Checks that each rank's part fits the layout, and that operators accept it.
void check(const DistTensor& y, const std::vector<double>& values) {
  const std::string text = y.spec()->to_string();
  if (!y.here()) return;
  const Tensor& part = y.local();
  ASSERT_TRUE(part.defined()) << text;
  EXPECT_EQ(part.dtype(), y.dtype()) << text;
  EXPECT_EQ(part.shape(),
            y.spec()->local_shape(RankContext::current().coordinate(y.mesh())))
      << text;
  std::vector<double> twice;
  for (double v : values) twice.push_back(2 * v);
  EXPECT_EQ((y + y).full().to_doubles(), twice) << text;
}

TEST(PartsAfterMeshes, RanksThatComeAnew) {
  const Mesh all = Mesh::parse("a=4"), square = Mesh::parse("a=2,b=2");
  struct {
    const char* mesh;
    Shape shape;
    const Mesh* to;
    const char* layout;
  } cases[] = {
      {"b=2 of ranks 1,3", {1}, &all, "S0"},
      {"b=2 of ranks 0,1", {2}, &all, "[{a}@0|1|2|2|2]"},
      {"b=2 of ranks 0,1", {2, 3}, &all, "[{a}@0|1|2|2|2,{}]"},
      {"b=1 of ranks 2", {3, 2}, &all, "[{a}@0|0|0|3|3,{}]"},
      {"b=2 of ranks 0,2", {4}, &square, "[{a,b}@0|2|2|4|4]"},
      {"b=1 of ranks 3", {0, 5}, &all, "S0"},
      {"b=1 of ranks 3", {0, 5}, &all, "P"},
  };
  for (const DType type : {DType::kF64, DType::kI64, DType::kF32, DType::kI32})
    run(4, [&](Runtime& rt) {
      for (const auto& c : cases) {
        const Mesh few = Mesh::parse(c.mesh);
        std::vector<double> values(static_cast<size_t>(numel(c.shape)));
        for (size_t i = 0; i < values.size(); ++i)
          values[i] = static_cast<double>(i + 1);
        const DistTensor x = DistTensor::wrap(
            few.mesh_rank_of(rt.rank()) < 0
                ? Tensor()
                : converted(Tensor::from(c.shape, values.data()), type),
            Spec::replicated(few, c.shape, type));
        const DistTensor y = x.redistribute(*c.to, c.layout);
        check(y, values);
        DistTensor z = x;
        relayout({&z, 1}, std::vector<SpecRef>{y.spec()});
        check(z, values);
        check(x.redistribute_async(*c.to, c.layout), values);
        check(y.redistribute(few, "R"), values);
      }
    });
}

}  // namespace
}  // namespace dtensor
