// SPDX-License-Identifier: Apache-2.0
// Pages that texts use, and those that are free.
#include "dtensor/nn/page_pool.h"

#include <gtest/gtest.h>

namespace dtensor::nn {
namespace {

using Tokens = std::vector<int64_t>;

// 7 pages on 3 ranks, which have pages [0, 2), [2, 4) and [4, 7).
TEST(PagePool, TakesFromOneRankAfterTheOther) {
  PagePool pool(7, 3);
  EXPECT_EQ(pool.size(), 7);
  Tokens taken;
  for (int64_t last = -1; pool.free() > 0; taken.push_back(last))
    last = pool.take(last);
  EXPECT_EQ(taken, (Tokens{0, 2, 4, 1, 3, 5, 6}));
  for (const int64_t p : {1, 2, 5}) pool.release(p);
  // A second text begins on the second rank.
  EXPECT_EQ(pool.take(-1), 2);
  EXPECT_EQ(pool.take(2), 5);
  EXPECT_EQ(pool.take(2), 1);
}

TEST(PagePool, TakesThePageThatIsFreeForLongest) {
  PagePool pool(4, 1);
  for (int64_t i = 0; i < 4; ++i) pool.take(-1);
  const auto a = pool.keep(3, 0, {1, 2}), b = pool.keep(1, a.number, {3, 4}),
             c = pool.keep(2, 0, {3, 4});
  EXPECT_EQ(a.page, 3);
  EXPECT_NE(b.number, c.number);
  pool.use(3);
  for (const int64_t p : {3, 2, 3, 1, 0}) pool.release(p);
  EXPECT_EQ(pool.free(), 4);
  EXPECT_EQ(pool.find(a.number, {3, 4})->page, 1);
  EXPECT_EQ(pool.find(a.number, {3, 5}), nullptr);
  EXPECT_EQ(pool.find(b.number, {3, 4}), nullptr);
  EXPECT_EQ(pool.take(-1), 0);  // has no tokens
  EXPECT_EQ(pool.take(-1), 2);
  EXPECT_EQ(pool.find(0, {3, 4}), nullptr);
  EXPECT_EQ(pool.find(0, {1, 2})->page, 3);
  pool.use(3);
  EXPECT_EQ(pool.take(-1), 1);
  EXPECT_EQ(pool.free(), 0);
}

TEST(PagePool, KeepsTheFirstPageOfATokenList) {
  PagePool pool(3, 1);
  for (int64_t i = 0; i < 3; ++i) pool.take(-1);
  const auto first = pool.keep(0, 0, {7}), again = pool.keep(1, 0, {7});
  EXPECT_EQ(again.page, 0);
  EXPECT_EQ(again.number, first.number);
  pool.release(1);
  pool.release(0);
  EXPECT_EQ(pool.take(-1), 1);
  EXPECT_EQ(pool.find(0, {7})->page, 0);
  EXPECT_EQ(pool.take(-1), 0);
  EXPECT_EQ(pool.find(0, {7}), nullptr);
  EXPECT_NE(pool.keep(2, 0, {7}).number, first.number);
}

}  // namespace
}  // namespace dtensor::nn
