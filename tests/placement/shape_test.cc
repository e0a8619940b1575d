// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/shape.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "dtensor/placement/error.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;

TEST(ShapeTest, HoldsItsEntries) {
  Shape none;
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.size(), 0);
  EXPECT_EQ(none.begin(), none.end());

  Shape s{2, 3, 5};
  EXPECT_FALSE(s.empty());
  EXPECT_EQ(s.size(), 3);
  EXPECT_EQ(s[0], 2);
  EXPECT_EQ(s[1], 3);
  EXPECT_EQ(s[2], 5);
  EXPECT_EQ(s.back(), 5);
  s[1] = 7;
  s.back() = 11;
  EXPECT_EQ(s, (Shape{2, 7, 11}));
  for (int64_t& x : s) ++x;
  const Shape& c = s;
  EXPECT_EQ(c[0], 3);
  EXPECT_EQ(c.back(), 12);
  EXPECT_EQ(std::accumulate(c.begin(), c.end(), int64_t{0}), 3 + 8 + 12);
}

TEST(ShapeTest, FromASpan) {
  std::vector<int64_t> v = {4, 5};
  EXPECT_EQ(Shape(std::span<const int64_t>(v)), (Shape{4, 5}));
  EXPECT_EQ(Shape(std::span<const int64_t>()), Shape{});
}

TEST(ShapeTest, Filled) {
  EXPECT_EQ(Shape::filled(3, 9), (Shape{9, 9, 9}));
  EXPECT_EQ(Shape::filled(0, 9), Shape{});
  EXPECT_EQ(Shape::filled(kMaxDims, 1).size(), kMaxDims);
}

TEST(ShapeTest, EqualityLooksAtTheEntriesAlone) {
  EXPECT_NE((Shape{1, 2}), (Shape{1, 2, 3}));
  EXPECT_NE((Shape{1, 2}), (Shape{2, 1}));
  EXPECT_NE(Shape{}, Shape{0});
  Shape s{1, 2, 3};
  s.pop_back();  // the 3 is still in memory
  EXPECT_EQ(s, (Shape{1, 2}));
}

TEST(ShapeTest, InsertAndErase) {
  Shape s{1, 2};
  s.insert(0, 7);
  EXPECT_EQ(s, (Shape{7, 1, 2}));
  s.insert(3, 8);
  EXPECT_EQ(s, (Shape{7, 1, 2, 8}));
  s.insert(2, 9);
  EXPECT_EQ(s, (Shape{7, 1, 9, 2, 8}));
  s.erase(0);
  EXPECT_EQ(s, (Shape{1, 9, 2, 8}));
  s.erase(3);
  EXPECT_EQ(s, (Shape{1, 9, 2}));
  s.erase(1);
  EXPECT_EQ(s, (Shape{1, 2}));
}

TEST(ShapeTest, AtMostMaxDims) {
  const std::string want =
      "[shape] a shape, or another list with an entry for each dimension, has "
      "more than 8 entries, but a tensor has at most 8 dimensions; write fewer";
  Shape full = Shape::filled(kMaxDims, 1);
  EXPECT_EQ(error_of([&] { Shape(full).push_back(1); }), want);
  EXPECT_EQ(error_of([&] { Shape(full).insert(0, 1); }), want);
  EXPECT_EQ(error_of([] { Shape::filled(kMaxDims + 1, 1); }), want);
  EXPECT_EQ(error_of([] { Shape{1, 2, 3, 4, 5, 6, 7, 8, 9}; }), want);
  std::vector<int64_t> v(kMaxDims + 1, 1);
  EXPECT_EQ(error_of([&] { Shape{std::span<const int64_t>(v)}; }), want);
}

TEST(NumelTest, IsTheProduct) {
  EXPECT_EQ(numel({}), 1);
  EXPECT_EQ(numel({5}), 5);
  EXPECT_EQ(numel({2, 3, 4}), 24);
  EXPECT_EQ(numel({2, 0, 4}), 0);
}

TEST(NumelTest, NegativeSize) {
  EXPECT_EQ(error_of([] {
              numel({2, -1});
            }),
            "[shape] [2, -1] has a negative size; write 0 or more");
  EXPECT_THROW(numel({0, -1}), Error);
}

// Neither the elements nor their bytes, at 8 bytes each, may overflow.
TEST(NumelTest, Overflow) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  constexpr int64_t k30 = int64_t{1} << 30;
  EXPECT_EQ(numel({k30, k30 / 2}), k30 * (k30 / 2));
  EXPECT_EQ(numel({kMax / 8}), kMax / 8);
  EXPECT_THROW(numel({kMax / 8 + 1}), Error);
  EXPECT_THROW(numel({k30, k30}), Error);
  EXPECT_THROW(numel({kMax, kMax, kMax}), Error);
  // 2^64 elements wrap to 0, 2^64 + 2^32 to a number that looks harmless.
  EXPECT_THROW(numel({int64_t{1} << 32, int64_t{1} << 32}), Error);
  EXPECT_THROW(numel({int64_t{1} << 32, (int64_t{1} << 32) + 1}), Error);
  EXPECT_EQ(
      error_of([] {
        numel({k30, k30});
      }),
      "[shape] the sizes of [1073741824, 1073741824] are too large, since "
      "those that are not 0 multiply to 2^60 or more; write smaller sizes");
}

// A size of 0 does not hide the others: their strides would overflow.
TEST(NumelTest, OverflowBesideZero) {
  constexpr int64_t k32 = int64_t{1} << 32;
  EXPECT_THROW(numel({0, k32, k32}), Error);
  EXPECT_THROW(numel({k32, k32, 0}), Error);
}

TEST(StridesTest, RowMajor) {
  EXPECT_EQ(contiguous_strides({}), Shape{});
  EXPECT_EQ(contiguous_strides({7}), Shape{1});
  EXPECT_EQ(contiguous_strides({2, 3, 4}), (Shape{12, 4, 1}));
  EXPECT_EQ(contiguous_strides({2, 1, 4}), (Shape{4, 4, 1}));
}

// As in PyTorch: a size of 0 counts as 1.
TEST(StridesTest, EmptyTensor) {
  EXPECT_EQ(contiguous_strides({2, 0, 4}), (Shape{4, 4, 1}));
  EXPECT_EQ(contiguous_strides({2, 3, 0}), (Shape{3, 1, 1}));
}

TEST(ShapeTextTest, ToString) {
  EXPECT_EQ(to_string(Shape{}), "[]");
  EXPECT_EQ(to_string(Shape{5}), "[5]");
  EXPECT_EQ(to_string(Shape{2, -3, 0}), "[2, -3, 0]");
}

TEST(ShapeTextTest, Parse) {
  EXPECT_EQ(parse_shape("", "t"), Shape{});
  EXPECT_EQ(parse_shape("7", "t"), Shape{7});
  EXPECT_EQ(parse_shape("64x32", "t"), (Shape{64, 32}));
  EXPECT_EQ(parse_shape("64,32", "t"), (Shape{64, 32}));
  EXPECT_EQ(parse_shape("2x3,4", "t"), (Shape{2, 3, 4}));
  EXPECT_EQ(parse_shape("0x3", "t"), (Shape{0, 3}));
  EXPECT_EQ(parse_shape("1x1x1x1x1x1x1x1", "t"), Shape::filled(8, 1));
}

TEST(ShapeTextTest, ParseErrors) {
  for (const char* text :
       {"x", ",", "2x", "x2", "2xx3", "2,,3", "2x-3", "-3", "+3", "a", "2a",
        "2 x3", " 2", "2 ", "2.5", "[2, 3]", "2X3", "99999999999999999999"})
    EXPECT_EQ(error_of([&] { parse_shape(text, "train --shape"); }),
              "[train --shape] '" + std::string(text) +
                  "' is not a shape; write sizes as 64x64 or 64,64");
  EXPECT_THROW(parse_shape("1x1x1x1x1x1x1x1x1", "t"), Error);
  EXPECT_THROW(parse_shape("4294967296x4294967296", "t"), Error);
}

TEST(NormalizeDimTest, CountsFromEitherEnd) {
  EXPECT_EQ(normalize_dim(0, 3, "t"), 0);
  EXPECT_EQ(normalize_dim(2, 3, "t"), 2);
  EXPECT_EQ(normalize_dim(-1, 3, "t"), 2);
  EXPECT_EQ(normalize_dim(-3, 3, "t"), 0);
}

TEST(NormalizeDimTest, OutOfRange) {
  EXPECT_EQ(error_of([] { normalize_dim(3, 3, "sum"); }),
            "[sum] dimension 3 is out of range; write -3 to 2");
  EXPECT_THROW(normalize_dim(-4, 3, "t"), Error);
  EXPECT_THROW(normalize_dim(0, 0, "t"), Error);
  EXPECT_THROW(normalize_dim(-1, 0, "t"), Error);
  // Would be 1 if it were cut to 32 bits first.
  EXPECT_THROW(normalize_dim((int64_t{1} << 32) + 1, 3, "t"), Error);
  EXPECT_THROW(normalize_dim(std::numeric_limits<int64_t>::min(), 3, "t"),
               Error);
}

TEST(BroadcastTest, NumPyRule) {
  EXPECT_EQ(broadcast_shapes({}, {}, "t"), Shape{});
  EXPECT_EQ(broadcast_shapes({2, 3}, {2, 3}, "t"), (Shape{2, 3}));
  EXPECT_EQ(broadcast_shapes({2, 3}, {}, "t"), (Shape{2, 3}));
  EXPECT_EQ(broadcast_shapes({2, 3}, {3}, "t"), (Shape{2, 3}));
  EXPECT_EQ(broadcast_shapes({3}, {2, 1}, "t"), (Shape{2, 3}));
  EXPECT_EQ(broadcast_shapes({4, 1, 3}, {5, 1}, "t"), (Shape{4, 5, 3}));
  EXPECT_EQ(broadcast_shapes({1}, {0}, "t"), Shape{0});
  EXPECT_EQ(broadcast_shapes({0, 1}, {1, 7}, "t"), (Shape{0, 7}));
}

TEST(BroadcastTest, Mismatch) {
  EXPECT_EQ(error_of([] {
              broadcast_shapes({4, 2, 3}, {5, 3}, "add");
            }),
            "[add] shapes [4, 2, 3] and [5, 3] do not broadcast: dimension -2 "
            "is 2 and 5; make them equal, or one of them 1");
  EXPECT_THROW(broadcast_shapes({2}, {3}, "t"), Error);
  EXPECT_THROW(broadcast_shapes({0}, {2}, "t"), Error);
}

TEST(ErrorTexts, CountThings) {
  EXPECT_EQ(quantity(0, "axis", "axes"), "0 axes");
  EXPECT_EQ(quantity(1, "axis", "axes"), "1 axis");
  EXPECT_EQ(quantity(2, "axis", "axes"), "2 axes");
}

}  // namespace
}  // namespace dtensor
