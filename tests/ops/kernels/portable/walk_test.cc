// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/portable/walk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "dtensor/placement/shape.h"

namespace dtensor::portable {
namespace {

TEST(DivisorTest, DividesAsTheProcessorDoes) {
  const uint32_t most = INT32_MAX;
  for (uint32_t d : {1u, 2u, 3u, 5u, 7u, 10u, 64u, 641u, 1000u, 65535u, 65536u,
                     6700417u, most / 2, most / 2 + 1, most - 1, most}) {
    const Divisor by(d);
    for (uint32_t q : {0u, 1u, 2u, 1000u, most / d - 1, most / d}) {
      for (int64_t n = int64_t{q} * d - 2; n <= int64_t{q} * d + 2; ++n)
        if (n >= 0 && n <= most) {
          ASSERT_EQ(by.quotient(static_cast<uint32_t>(n)), n / d)
              << n << " by " << d;
        }
    }
    EXPECT_EQ(by.quotient(most), most / d) << d;
  }
}

// The offsets of all elements, in order.
template <int A>
std::vector<std::array<int64_t, A>> offsets(const Walk<A>& walk) {
  std::vector<std::array<int64_t, A>> all;
  for (int64_t i = 0; i < walk.count(); ++i) {
    int64_t at[A];
    walk.at(i, at);
    all.push_back(std::to_array(at));
  }
  return all;
}
using Pairs = std::vector<std::array<int64_t, 2>>;

TEST(WalkTest, FindsEveryElement) {
  const Shape shape = {3, 1, 4, 5}, dst = {20, 20, 5, 1}, src = {0, 7, -2, 11};
  const Walk<2> walk(shape, {dst, src});
  Pairs want;
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t j = 0; j < 4; ++j)
      for (int64_t k = 0; k < 5; ++k)
        want.push_back({20 * i + 5 * j + k, -2 * j + 11 * k});
  EXPECT_EQ(offsets(walk), want);
  EXPECT_EQ(walk.inner(), 5);
  EXPECT_EQ(walk.inner_step(1), 11);
}

TEST(WalkTest, GoesInTheOrderOfTheDestination) {
  const Walk<2> walk(Shape{2, 3}, {Shape{1, 2}, Shape{3, 1}});
  EXPECT_EQ(offsets(walk),
            (Pairs{{0, 0}, {1, 3}, {2, 1}, {3, 4}, {4, 2}, {5, 5}}));
}

TEST(WalkTest, FusesWhatIsOneLoop) {
  const Shape shape = {4, 6, 8}, dense = contiguous_strides(shape);
  EXPECT_EQ(Walk<2>(shape, {dense, dense}).inner(), 192);
  EXPECT_EQ(Walk<2>(shape, {dense, Shape{0, 8, 1}}).inner(), 48);
  EXPECT_EQ(Walk<2>(shape, {dense, Shape{1, 4, 24}}).inner(), 8);
}

TEST(WalkTest, ScalarsAndNothing) {
  EXPECT_EQ(offsets(Walk<2>(Shape{}, {Shape{}, Shape{}})), (Pairs{{0, 0}}));
  EXPECT_EQ(offsets(Walk<2>(Shape{1, 1}, {Shape{5, 5}, Shape{0, 3}})),
            (Pairs{{0, 0}}));
  EXPECT_EQ(Walk<2>(Shape{4, 0, 2}, {Shape{0, 2, 1}, Shape{0, 2, 1}}).count(),
            0);
}

TEST(WalkTest, RunsBeginAtEveryInnermostLoop) {
  struct Case {
    Shape shape, strides;
  };
  for (const Case& c :
       {Case{{3, 1, 4, 5}, {0, 7, -2, 11}}, Case{{2, 2, 3}, {1, 2, 4}},
        Case{{7}, {1}}, Case{{}, {}}, Case{{3, 0}, {1, 1}}}) {
    const Walk<2> walk(c.shape, {contiguous_strides(c.shape), c.strides});
    const Pairs all = offsets(walk);
    Pairs want, got;
    for (int64_t i = 0; i < walk.count(); i += walk.inner())
      want.push_back(all[static_cast<size_t>(i)]);
    walk.runs([&](const int64_t(&at)[2]) { got.push_back(std::to_array(at)); });
    EXPECT_EQ(got, want) << to_string(c.shape);
  }
}

TEST(WalkTest, SixteenLoops) {
  // Each loop has two rounds, and none can be fused with its neighbour.
  std::vector<int64_t> shape(kMaxLoops, 2), dst, src;
  for (int d = kMaxLoops - 1; d >= 0; --d) {
    dst.push_back(int64_t{1} << d);
    src.push_back(3 * int64_t{1} << (d ^ 1));
  }
  const Walk<2> walk(shape, {dst, src});
  ASSERT_EQ(walk.count(), 1 << kMaxLoops);
  for (int64_t i : {0, 1, 2, 12345, 54321, 65535}) {
    int64_t at[2];
    walk.at(i, at);
    EXPECT_EQ(at[0], i);
    int64_t want = 0;
    for (int d = 0; d < kMaxLoops; ++d)
      if (i >> d & 1) want += 3 * int64_t{1} << (d ^ 1);
    EXPECT_EQ(at[1], want);
  }
}

TEST(WalkTest, MoreElementsThanFitInto32Bits) {
  const int64_t n = int64_t{3} << 30, m = 7;
  for (const Shape& shape : {Shape{m, n}, Shape{n, m}}) {
    const Walk<2> walk(shape, {contiguous_strides(shape), Shape{1, shape[0]}});
    ASSERT_EQ(walk.count(), n * m);
    for (int64_t i : {int64_t{0}, n - 1, n, 5 * n + 12345, n * m - 1}) {
      int64_t at[2];
      walk.at(i, at);
      EXPECT_EQ(at[0], i);
      EXPECT_EQ(at[1], i / shape[1] + i % shape[1] * shape[0]);
    }
  }
  // The largest number of elements that fits into 32 bits.
  const Walk<2> walk(Shape{1, INT32_MAX / 3, 3},
                     {Shape{0, 3, 1}, Shape{0, 1, INT32_MAX}});
  int64_t at[2];
  walk.at(walk.count() - 1, at);
  EXPECT_EQ(at[1], INT32_MAX / 3 - 1 + int64_t{2} * INT32_MAX);
}

// Walks by packs and by single elements, of several types, aligned or not.
TEST(WalkTest, MapsWhateverTheStridesAndTheAlignment) {
  struct Case {
    Shape shape, strides;
  };
  const Case cases[] = {
      {{67}, {1}},
      {{64}, {1}},
      {{4, 16}, {16, 1}},
      {{4, 16}, {17, 1}},
      {{4, 16}, {32, 1}},
      {{4, 16}, {0, 1}},
      {{4, 16}, {1, 0}},
      {{4, 16}, {1, 4}},
      {{4, 15}, {16, 1}},
      {{64}, {0}},
      {{4, 2, 8}, {0, 8, 1}},
      {{}, {}},
      {{3, 0}, {1, 1}},
  };
  for (const Case& c : cases)
    for (int shift : {0, 1}) {
      alignas(16) int32_t x[256];
      alignas(16) int16_t y[256];
      alignas(16) int64_t out[128];
      for (int i = 0; i < 256; ++i) x[i] = i, y[i] = static_cast<int16_t>(-i);
      std::fill_n(out, 128, -1);
      const Shape dense = contiguous_strides(c.shape);
      const Walk<3> walk(c.shape, {dense, c.strides, dense});
      map(
          Stream(), walk, out + shift,
          DT_BODY(int32_t a, int16_t b) { return 1000 * a + b; }, x + shift, y);
      const int64_t n = numel(c.shape);
      std::vector<std::array<int64_t, 3>> all = offsets(walk);
      ASSERT_EQ(static_cast<int64_t>(all.size()), n);
      for (const auto& at : all)
        ASSERT_EQ(out[at[0] + shift], 1000 * (at[1] + shift) - at[2])
            << to_string(c.shape) << to_string(c.strides) << shift;
      ASSERT_TRUE(
          std::all_of(out, out + shift, [](int64_t v) { return v == -1; }));
      ASSERT_TRUE(std::all_of(out + shift + n, out + 128,
                              [](int64_t v) { return v == -1; }));
    }
}

TEST(WalkTest, PacksWhatIsAlignedOrOneElement) {
  alignas(16) float x[64];
  const Shape shape = {4, 16}, dense = {16, 1};
  const auto packs = [&](const Shape& strides, const float* p) {
    return Walk<2>(shape, {dense, strides}).packs(1, p, 4);
  };
  EXPECT_TRUE(packs({16, 1}, x));
  EXPECT_TRUE(packs({0, 1}, x));
  EXPECT_TRUE(packs({20, 1}, x));
  EXPECT_TRUE(packs({1, 0}, x + 1));
  EXPECT_FALSE(packs({16, 1}, x + 1));
  EXPECT_FALSE(packs({17, 1}, x));
  EXPECT_FALSE(packs({1, 4}, x));
  EXPECT_FALSE(Walk<1>(Shape{4, 15}, {Shape{16, 1}}).packs(0, x, 4));
  EXPECT_TRUE(Walk<1>(Shape{61}, {Shape{1}}).packs(0, x, 4));
  EXPECT_FALSE(Walk<1>(Shape{1}, {Shape{1}}).packs(0, x, 4));
}

}  // namespace
}  // namespace dtensor::portable
