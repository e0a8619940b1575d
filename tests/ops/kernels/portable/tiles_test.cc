// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/portable/tiles.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "dtensor/placement/shape.h"

namespace dtensor::portable {
namespace {

TEST(TilesTest, AreForBoxesThatAreTransposed) {
  struct Case {
    int64_t item;
    Shape shape, dst, src;
    bool tiles;
  };
  const Case cases[] = {
      {4, {100, 100}, {100, 1}, {1, 100}, true},
      {1, {100, 100}, {100, 1}, {1, 100}, true},
      {8, {100, 100}, {100, 1}, {-1, 100}, true},
      {2, {4, 100, 9}, {900, 9, 1}, {900, 1, 100}, true},
      {2, {100, 4, 90}, {360, 90, 1}, {1, 9000, 100}, true},
      // The walk is in the order of the destination's memory.
      {4, {100, 100}, {1, 100}, {100, 1}, true},
      // Source and destination are contiguous along the same dimension.
      {4, {100, 100}, {100, 1}, {100, 1}, false},
      {4, {100, 5, 100}, {500, 100, 1}, {100, 10000, 1}, false},
      {4, {100, 100}, {100, 1}, {200, -1}, false},
      // The source repeats elements along a dimension.
      {4, {100, 100}, {100, 1}, {1, 0}, false},
      {4, {100, 100}, {100, 1}, {0, 100}, false},
      // Neighbours of the source still share a sector.
      {1, {31, 100}, {100, 1}, {1, 31}, false},
      {1, {32, 100}, {100, 1}, {1, 32}, true},
      {4, {7, 100}, {100, 1}, {1, 7}, false},
      // Too few rows or columns for tiles, and just enough.
      {4, {7, 100}, {100, 1}, {1, 50}, false},
      {4, {8, 100}, {100, 1}, {1, 50}, true},
      {4, {100, 7}, {7, 1}, {1, 100}, false},
      {4, {100, 8}, {8, 1}, {1, 100}, true},
      // The source is not contiguous along any dimension.
      {4, {100, 100}, {100, 1}, {8, 800}, false},
      // No elements, or no dimensions.
      {4, {100, 0}, {0, 1}, {1, 100}, false},
      {4, {}, {}, {}, false},
  };
  for (const Case& c : cases)
    EXPECT_EQ(Tiles::of(c.item, c.shape, c.dst, c.src).has_value(), c.tiles)
        << "case " << &c - cases;
}

// Each element is in one tile, once.
TEST(TilesTest, CoverTheBox) {
  const Shape shape = {70, 3, 41}, dst = {123, 41, 1}, src = {1, 80, 240};
  const auto tiles = Tiles::of(4, shape, dst, src);
  ASSERT_TRUE(tiles);
  EXPECT_EQ(tiles->count(), 3 * 3 * 2);
  std::vector<int> times(static_cast<size_t>(numel(shape)));
  for (int64_t t = 0; t < tiles->count(); ++t) {
    const Tiles::Tile tile = tiles->tile(t);
    for (int64_t i = 0; i < tile.ni; ++i)
      for (int64_t j = 0; j < tile.nj; ++j) {
        const int64_t to = tile.dst + tiles->dst(i, j),
                      from = tile.src + tiles->src(i, j);
        ++times.at(static_cast<size_t>(to));
        EXPECT_EQ(from, to / 123 + to / 41 % 3 * 80 + to % 41 * 240);
      }
  }
  EXPECT_EQ(times, std::vector<int>(times.size(), 1));
}

}  // namespace
}  // namespace dtensor::portable
