// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/shared_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace dtensor {
namespace {

using Cache = SharedCache<int, std::string>;

TEST(SharedCache, KeepsTheFirstValueOfAKey) {
  Cache cache("texts", 8);
  EXPECT_EQ(cache.find(1), nullptr);
  const auto one = std::make_shared<const std::string>("one");
  cache.insert(1, one);
  cache.insert(1, std::make_shared<const std::string>("another"));
  EXPECT_EQ(cache.find(1), one);
  EXPECT_EQ(cache.find(2), nullptr);
}

TEST(SharedCache, AValueOutlivesItsEntry) {
  Cache cache("texts", 8);
  cache.insert(0, std::make_shared<const std::string>("zero"), 4);
  const auto zero = cache.find(0);
  for (int i = 1; i < 20; ++i)
    cache.insert(i, std::make_shared<const std::string>("more"), 4);
  EXPECT_EQ(cache.find(0), nullptr);
  EXPECT_EQ(*zero, "zero");
}

// All threads get the same objects, also while entries are dropped.
TEST(SharedCache, ServesManyThreads) {
  Cache cache("numbers", 64);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 20000; ++i) {
        const int key = i % 100;
        if (const auto found = cache.find(key))
          ASSERT_EQ(*found, std::to_string(key));
        else
          cache.insert(
              key, std::make_shared<const std::string>(std::to_string(key)));
      }
    });
  for (std::thread& t : threads) t.join();
}

}  // namespace
}  // namespace dtensor
