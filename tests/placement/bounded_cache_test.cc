// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/bounded_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <unordered_map>

namespace dtensor {
namespace {

TEST(BoundedCache, FindsWhatWasInserted) {
  BoundedCache<int, std::string> cache("test", 100);
  EXPECT_EQ(cache.find(1), nullptr);
  EXPECT_EQ(cache.insert(1, "one"), "one");
  ASSERT_NE(cache.find(1), nullptr);
  EXPECT_EQ(*cache.find(1), "one");
  EXPECT_EQ(cache.find(2), nullptr);
  CacheUse use = cache.use();
  EXPECT_EQ(use.hits, 2);
  EXPECT_EQ(use.misses, 2);
  EXPECT_EQ(use.entries, 1u);
  cache.clear();
  EXPECT_EQ(cache.find(1), nullptr);
  EXPECT_EQ(cache.use().weight, 0u);
}

// The cache never holds more than its limit, nor returns a wrong value.
TEST(BoundedCache, NeverHoldsMoreThanItsLimit) {
  std::mt19937 gen(5);
  BoundedCache<int, int> cache("test", 64);
  size_t most = 0;
  for (int i = 0; i < 20000; ++i) {
    int key = static_cast<int>(gen() % 300);
    if (int* value = cache.find(key))
      EXPECT_EQ(*value, 7 * key);
    else
      cache.insert(key, 7 * key, 1 + gen() % 8);
    EXPECT_LE(cache.use().weight, 64u);
    most = std::max(most, cache.use().weight);
  }
  EXPECT_GT(most, 56u);
  EXPECT_EQ(cache.use().hits + cache.use().misses, 20000);
}

TEST(BoundedCache, WhatIsUsedIsKept) {
  BoundedCache<int, int> cache("test", 16);
  cache.insert(-1, 42);
  for (int i = 0; i < 1000; ++i) {
    cache.insert(i, i);
    ASSERT_NE(cache.find(-1), nullptr) << i;
  }
  // An entry that was not looked up again is gone; the newest is there.
  EXPECT_EQ(cache.find(0), nullptr);
  EXPECT_NE(cache.find(999), nullptr);
}

TEST(BoundedCache, AnEntryLargerThanTheLimitIsHeldAlone) {
  BoundedCache<int, int> cache("test", 10);
  for (int i = 0; i < 3; ++i) {
    cache.insert(i, i, 1000);
    EXPECT_NE(cache.find(i), nullptr);
  }
  EXPECT_LE(cache.use().entries, 1u);
}

TEST(BoundedCache, ReferencesStayForHalfOfTheLimit) {
  BoundedCache<int, int> cache("test", 20);
  for (int i = 0; i < 10; ++i) cache.insert(i, i);
  int* last = cache.find(9);
  cache.insert(10, 10);  // a new generation
  EXPECT_EQ(cache.find(9), last);
  for (int i = 11; i < 20; ++i) cache.insert(i, i);
  EXPECT_EQ(*last, 9);
}

TEST(BoundedCache, FreesWhatItForgets) {
  BoundedCache<int, std::shared_ptr<int>> cache("test", 8);
  auto value = std::make_shared<int>(1);
  for (int i = 0; i < 100; ++i) cache.insert(i, value);
  EXPECT_LE(value.use_count(), 9);
}

struct Hash {
  using is_transparent = void;
  size_t operator()(std::string_view s) const {
    return std::hash<std::string_view>()(s);
  }
};

// A look-up by another type than the key's builds no key.
TEST(BoundedCache, LooksUpTransparently) {
  BoundedCache<std::string, int, Hash> cache("test", 8);
  cache.insert("a", 1);
  EXPECT_NE(cache.find(std::string_view("a")), nullptr);
}

TEST(BoundedCache, PrintsItsUse) {
  CacheUse use[] = {{"plans", 1234567, 3, 2, 2104, 8388608},
                    {"rules", 0, 0, 0, 0, 100}};
  EXPECT_EQ(to_string(use),
            "plans: 2 entries, weight 2,104 of 8,388,608; 1,234,567 hits, 3 "
            "misses\n"
            "rules: 0 entries, weight 0 of 100; 0 hits, 0 misses\n");
}

}  // namespace
}  // namespace dtensor
