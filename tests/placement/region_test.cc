// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/region.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/placement/indices.h"

namespace dtensor {
namespace {

// operator[] of a temporary returns a value, not a reference.
static_assert(std::is_same_v<decltype(Region()[0]), IntervalList>);
static_assert(
    std::is_same_v<decltype(std::declval<Region&>()[0]), IntervalList&>);

TEST(RegionTest, Counts) {
  IntervalList a{{0, 2}, {4, 6}}, b{{1, 5}};
  EXPECT_EQ(length({}), 0);
  EXPECT_EQ(length(a), 4);
  EXPECT_EQ(overlap(a, b), 2);
  EXPECT_EQ(overlap(a, IntervalList{}), 0);
  EXPECT_EQ(overlap(a, a), 4);
  Region r{a, b};
  EXPECT_EQ(volume(r), 16);
  EXPECT_EQ(local_shape(r), (Shape{4, 4}));
  EXPECT_EQ(overlap(r, Region{b, b}), 8);
  // A scalar has one element, which every rank holds.
  EXPECT_EQ(volume(Region{}), 1);
  EXPECT_EQ(overlap(Region{}, Region{}), 1);
  EXPECT_EQ(local_shape(Region{}), Shape{});
}

TEST(RegionTest, IntersectKeepsTheLocalOrder) {
  const Region region{{{6, 10}, {0, 4}}};
  const Region panel{{{1, 3}, {7, 8}, {9, 20}}};
  EXPECT_EQ(intersect(region, panel), (Region{{{7, 8}, {9, 10}, {1, 3}}}));
  EXPECT_EQ(subtract(region[0], panel[0]),
            (IntervalList{{6, 7}, {8, 9}, {0, 1}, {3, 4}}));
}

IntervalList random_list(std::mt19937& rng, int64_t n, bool ascending) {
  IntervalList list;
  for (int64_t lo = static_cast<int64_t>(rng() % 3); lo < n;) {
    const int64_t hi = std::min<int64_t>(n, lo + 1 + rng() % 4);
    if (rng() % 2) list.push_back({lo, hi});
    lo = hi + 1;
  }
  if (!ascending) std::shuffle(list.begin(), list.end(), rng);
  return list;
}

std::vector<int64_t> indices_of(const IntervalList& list, int64_t n) {
  return testing::indices({list}, {n});
}

// Compares list operations with the same on one index after the other.
TEST(RegionTest, ListsIndexByIndex) {
  std::mt19937 rng(3);
  for (int round = 0; round < 2000; ++round) {
    const int64_t n = static_cast<int64_t>(rng() % 20);
    const IntervalList a = random_list(rng, n, rng() % 2);
    const IntervalList b = random_list(rng, n, true);
    const std::vector<int64_t> of_b = indices_of(b, n);
    const std::set<int64_t> in_b(of_b.begin(), of_b.end());
    std::vector<int64_t> both, rest;
    for (int64_t i : indices_of(a, n))
      (in_b.contains(i) ? both : rest).push_back(i);
    EXPECT_EQ(indices_of(intersect(a, b), n), both);
    EXPECT_EQ(indices_of(subtract(a, b), n), rest);
    for (const IntervalList& made : {intersect(a, b), subtract(a, b)})
      for (const Interval& r : made) EXPECT_GT(r.size(), 0);
    EXPECT_EQ(overlap(a, b), static_cast<int64_t>(both.size()));
    IntervalList turned = b;
    std::shuffle(turned.begin(), turned.end(), rng);
    EXPECT_EQ(overlap(a, turned), static_cast<int64_t>(both.size()));
  }
}

TEST(RegionTest, SubtractedRegionsAreDisjoint) {
  std::mt19937 rng(4);
  const Shape shape{7, 6, 5};
  for (int round = 0; round < 300; ++round) {
    Region a, b;
    for (int64_t n : shape) {
      a.push_back(random_list(rng, n, true));
      b.push_back(random_list(rng, n, true));
    }
    std::multiset<int64_t> expected, found;
    const std::vector<int64_t> of_b = testing::indices(b, shape);
    const std::set<int64_t> in_b(of_b.begin(), of_b.end());
    for (int64_t i : testing::indices(a, shape))
      if (!in_b.contains(i)) expected.insert(i);
    for (const Region& r : subtract(a, b))
      for (int64_t i : testing::indices(r, shape)) found.insert(i);
    EXPECT_EQ(found, expected);
  }
  EXPECT_TRUE(subtract(Region{}, Region{}).empty());
}

// A HeldRegion knows where each range lies in memory, which has another order.
TEST(RegionTest, HeldRegionKnowsWhereRangesLie) {
  const HeldRegion held({{{6, 10}, {0, 4}}, {{1, 2}}});
  EXPECT_EQ(held.ascending(), (Region{{{0, 4}, {6, 10}}, {{1, 2}}}));
  EXPECT_EQ(held.starts(0)[0], 4);
  EXPECT_EQ(held.starts(0)[1], 0);
  EXPECT_TRUE(held.starts(1).empty());
}

}  // namespace
}  // namespace dtensor
