// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/spec.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

#include "dtensor/placement/bounded_cache.h"
#include "dtensor/placement/error.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;

using enum ReduceOp;
using enum DType;

const Mesh& grid() {
  static const Mesh m = Mesh::parse("dp=2,tp=3");
  return m;
}

const Spec* spec(const char* text, const Shape& shape, DType t = kF32,
                 const Mesh& m = grid()) {
  return Spec::get(m, shape, parse_layout(text, m, shape), t);
}

Coord at(int a, int b) {
  Coord c;
  c[0] = a;
  c[1] = b;
  return c;
}

TEST(SpecTest, SaysWhatItWasMadeOf) {
  const Spec* s = spec("S0,P(max)", {4, 6}, kBF16);
  EXPECT_EQ(s->mesh(), grid());
  EXPECT_EQ(s->shape(), (Shape{4, 6}));
  EXPECT_EQ(s->dtype(), kBF16);
  EXPECT_EQ(s->ndim(), 2);
  EXPECT_EQ(s->dim(0), Dim(4, Split::over({0})));
  EXPECT_EQ(s->split_axes(), 0b01u);
  EXPECT_EQ(s->partial_axes(), 0b10u);
  EXPECT_FALSE(s->is_replicated());
  EXPECT_EQ(s->layout(), parse_layout("S0,P(max)", grid(), {4, 6}));
  EXPECT_EQ(s->to_string(), "bf16[4, 6](S0,P(max))");
  EXPECT_EQ(
      Spec::get(grid(), {6}, Layout{{Dim(6, Split::over({1, 0}))}, {}}, kF32)
          ->to_string(),
      "f32[6]([{tp,dp}])");
}

TEST(SpecTest, FreesWhatNothingHolds) {
  const SpecRef kept = spec("S0,R", {4001, 3});
  const SpecRef copy = SpecRef(kept);
  const size_t before = Spec::use().entries;
  for (int64_t n = 0; n < 20000; ++n) {
    const Spec* s = spec("S0,R", {5000 + n, 3});
    // A spec that this thread got 1000 calls ago still exists without a holder.
    if (n >= 1000) {
      EXPECT_EQ(spec("S0,R", {4000 + n, 3})->shape()[0], 4000 + n);
    }
    EXPECT_EQ(s->shape()[0], 5000 + n);
  }
  EXPECT_LE(Spec::use().entries, before + 3 * 4096);
  EXPECT_EQ(spec("S0,R", {4001, 3}), copy);
  EXPECT_EQ(copy->to_string(), "f32[4001, 3](S0,R)");
}

// Threads free specs while others take and drop them.
TEST(SpecTest, ThreadsShareAndFree) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      std::vector<SpecRef> held(64);
      for (int64_t i = 0; i < 20000; ++i) {
        const int64_t n = i * (1 + t % 2) + 7;
        const Spec* s = spec("S0,R", {n, 11});
        const size_t at = static_cast<size_t>(i) % held.size();
        if (held[at]) {
          EXPECT_EQ(held[at]->shape()[1], 11);
        }
        held[at] = s;
        EXPECT_EQ(held[at]->shape()[0], n);
        EXPECT_EQ(spec("S0,R", {n, 11}), s);
      }
    });
  for (std::thread& t : threads) t.join();
}

TEST(SpecTest, Replicated) {
  const Spec* s = Spec::replicated(grid(), {4, 6}, kF32);
  EXPECT_TRUE(s->is_replicated());
  EXPECT_EQ(s, spec("R,R", {4, 6}));
  EXPECT_EQ(s->local_shape(at(1, 2)), (Shape{4, 6}));
  EXPECT_EQ(Spec::replicated(grid(), {}, kF32)->to_string(), "f32[](R,R)");
}

TEST(SpecTest, EqualSpecsAreOne) {
  const Spec* s = spec("S0,R", {12, 5});
  auto same = [&](const Dim& d, std::vector<Partial> p = {}) {
    return Spec::get(grid(), {12, 5}, Layout{{d, Dim(5)}, std::move(p)}, kF32);
  };
  EXPECT_EQ(same(Dim(12, Split::over({0}))), s);
  EXPECT_EQ(same(Dim(12, Split::over({0}, 3))), s);
  EXPECT_EQ(same(Dim(12, Split::at({0}, {0, 6, 12}, grid()))), s);
  EXPECT_EQ(same(Dim::product({Dim(4, Split::over({0})), Dim(3)})), s);
  EXPECT_EQ(same(Dim::product({Dim(1), Dim(12, Split::over({0}))})), s);
  EXPECT_EQ(same(Dim::concat({Dim(9, Split::at({0}, {0, 6, 9}, grid())),
                              Dim(3, Split::at({0}, {0, 0, 3}, grid()))})),
            s);
  EXPECT_EQ(s->with(s->layout()), s);
  EXPECT_EQ(s->with(kF32), s);
  EXPECT_EQ(s->with(kF64)->with(kF32), s);
  EXPECT_EQ(s->with(kF64)->layout(), s->layout());
}

TEST(SpecTest, PartialsThatCommuteAreOneSpec) {
  Shape shape{4};
  auto get = [&](std::vector<Partial> p) {
    return Spec::get(grid(), shape, Layout{{Dim(4)}, std::move(p)}, kF32);
  };
  EXPECT_EQ(get({{1, kSum}, {0, kAvg}}), get({{0, kAvg}, {1, kSum}}));
  EXPECT_NE(get({{1, kSum}, {0, kMax}}), get({{0, kMax}, {1, kSum}}));
}

TEST(SpecTest, DifferentSpecsDiffer) {
  std::vector<SpecRef> all = {
      spec("S0,R", {6, 6}),
      spec("R,S0", {6, 6}),
      spec("S1,R", {6, 6}),
      spec("R,R", {6, 6}),
      spec("P,R", {6, 6}),
      spec("P(max),R", {6, 6}),
      spec("R,R", {6, 7}),
      spec("R,R", {36}),
      spec("R,R", {6, 6}, kF64),
      spec("S0/3,R", {9, 6}),
      spec("S0@0|1|6,R", {6, 6}),
      spec("R,R", {6, 6}, kF32, Mesh::parse("2x3")),
      spec("S0,S0", {6, 6}),
      Spec::get(grid(), {6, 6},
                Layout{{Dim(6, Split::over({1, 0})), Dim(6)}, {}}, kF32)};
  std::set<const Spec*> pointers(all.begin(), all.end());
  std::set<uint64_t> hashes;
  for (const Spec* s : all) hashes.insert(s->hash());
  EXPECT_EQ(pointers.size(), all.size());
  EXPECT_EQ(hashes.size(), all.size());
}

// Processes of a job compare hashes, so a new hash is a new protocol.
TEST(SpecTest, HashIsThatOfEveryProcess) {
  EXPECT_EQ(spec("S0/3,P(max)", {9, 6}, kBF16)->hash(), 11479774947038950861u);
}

TEST(SpecTest, ManyThreadsMakeOneSpec) {
  std::vector<std::vector<SpecRef>> made(4);
  std::vector<std::thread> threads;
  for (auto& mine : made)
    threads.emplace_back([&mine] {
      for (int64_t n = 1; n < 200; ++n)
        mine.push_back(spec("S0,S1", {n, 1000}));
    });
  for (std::thread& t : threads) t.join();
  for (const auto& mine : made) EXPECT_EQ(mine, made[0]);
}

TEST(SpecTest, LocalShapes) {
  const Spec* s = spec("S0,S1", {5, 7});
  EXPECT_EQ(s->local_shape(at(0, 0)), (Shape{2, 2}));
  EXPECT_EQ(s->local_shape(at(1, 2)), (Shape{3, 3}));
  EXPECT_EQ(s->region(at(1, 2)), (Region{{{2, 5}}, {{4, 7}}}));
  EXPECT_EQ(s->largest_part_bytes(), 3 * 3 * 4);
  EXPECT_EQ(spec("R,S0", {2, 5})->local_shape(at(0, 0)), (Shape{0, 5}));
  EXPECT_EQ(spec("P,P", {}, kF64)->local_shape(at(0, 0)), Shape{});
  EXPECT_EQ(spec("P,P", {}, kF64)->largest_part_bytes(), 8);
  EXPECT_EQ(spec("S0,R", {0, 5})->largest_part_bytes(), 0);
  // Columns of 2, 3, 4 and 5.
  Mesh four = Mesh::parse("4");
  const Spec* ragged = spec("S1@0|2|5|9|14", {3, 14}, kF32, four);
  for (int r = 0; r < 4; ++r)
    EXPECT_EQ(ragged->local_shape(at(r, 0)), (Shape{3, 2 + r}));
  EXPECT_EQ(ragged->largest_part_bytes(), 3 * 5 * 4);
}

TEST(SpecTest, AMeanHasALeadingComponent) {
  const Spec* s = spec("S0,P(mean)", {5, 7});
  EXPECT_EQ(s->components(), 2);
  EXPECT_EQ(s->local_shape(at(1, 0)), (Shape{2, 3, 7}));
  EXPECT_EQ(s->region(at(1, 0)), (Region{{{2, 5}}, {{0, 7}}}));
  EXPECT_EQ(s->largest_part_bytes(), 2 * 3 * 7 * 4);
  EXPECT_EQ(spec("P(mean),P(mean)", {5})->local_shape({}), (Shape{2, 5}));
  EXPECT_EQ(spec("P,P(mean)", {})->local_shape({}), Shape{2});
  EXPECT_EQ(spec("P,P(max)", {5})->components(), 1);
  // Over an axis of size 1 it still is a (sum, count).
  EXPECT_EQ(spec("P(mean)", {5}, kF32, Mesh::parse("1"))->local_shape({}),
            (Shape{2, 5}));
}

TEST(SpecErrorTest, WhatDoesNotFit) {
  Layout l = Layout::replicated({4, 6});
  EXPECT_EQ(error_of([&] {
              Spec::get(Mesh(), {4, 6}, l, kF32);
            }),
            "[spec] a tensor needs a mesh, but this one is empty; pass a mesh "
            "with axes, such as Mesh::parse(\"dp=2\")");
  EXPECT_EQ(error_of([&] { Spec::get(grid(), {4}, l, kF32); }),
            "[spec] a layout of 2 dimensions does not fit shape [4]; write one "
            "of 1 dimension");
  EXPECT_EQ(error_of([&] {
              Spec::get(grid(), {4, 7}, l, kF32);
            }),
            "[spec] dimension 1 has size 6 in the layout, but in the shape [4, "
            "7] it has 7; write both with the same size");
  int64_t k40 = int64_t{1} << 40;
  EXPECT_EQ(error_of([&] {
              Spec::replicated(grid(), {k40, k40}, kF32);
            }),
            "[shape] the sizes of [1099511627776, 1099511627776] are too "
            "large, since those that are not 0 multiply to 2^60 or more; write "
            "smaller sizes");
  EXPECT_EQ(error_of([&] { Spec::replicated(grid(), {-1}, kF32); }),
            "[shape] [-1] has a negative size; write 0 or more");
  Dim split(6, Split::over({0}));
  EXPECT_EQ(error_of([&] {
              Spec::get(grid(), {6, 6}, Layout{{split, split}, {}}, kF32);
            }),
            "[layout] a layout uses axis dp of mesh dp=2,tp=3 twice; use it "
            "once, to split one dimension or for one partial");
  const Partial exact{0, ReduceOp::kExactSum}, sum{1, ReduceOp::kSum};
  EXPECT_EQ(error_of([&] {
              Spec::get(grid(), {6}, Layout{{Dim(6)}, {exact}}, kI64);
            }),
            "[spec] P(exact),R of i64 is exact over some axis; an exact sum is "
            "of floats, and exact over each axis of its partials: write "
            "P(exact) there too, or P(sum) here");
  EXPECT_NE(error_of([&] {
              Spec::get(grid(), {6}, Layout{{Dim(6)}, {exact, sum}}, kF32);
            }).find("P(exact),P of f32 is exact over some axis"),
            std::string::npos);
}

TEST(SpecTest, ExactPartsHaveTheTypeExact) {
  const Spec* s = Spec::get(
      grid(), {6}, Layout{{Dim(6)}, {{0, ReduceOp::kExactSum}}}, kBF16);
  EXPECT_EQ(s->to_string(), "bf16[6](P(exact),R)");
  EXPECT_TRUE(s->exact());
  EXPECT_EQ(s->part_dtype(), DType::kExact);
  EXPECT_EQ(s->largest_part_bytes(), 6 * 16);
  const Spec* whole = Spec::replicated(grid(), {6}, kBF16);
  EXPECT_FALSE(whole->exact());
  EXPECT_EQ(whole->part_dtype(), kBF16);
}

}  // namespace
}  // namespace dtensor
