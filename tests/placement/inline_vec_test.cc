// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/inline_vec.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing.h"

namespace dtensor {
namespace {

TEST(InlineVec, HoldsWhatItWasGiven) {
  InlineVec<std::string, 3> v;
  EXPECT_TRUE(v.empty());
  v.push_back("a");
  EXPECT_EQ(v.push_back(std::string(100, 'b')), std::string(100, 'b'));
  v.resize(3);
  EXPECT_EQ(v.back(), "");
  EXPECT_EQ(v.size(), 3u);
  std::string all;
  for (const std::string& s : v) all += s;
  EXPECT_EQ(all, "a" + std::string(100, 'b'));
  v.resize(1);
  EXPECT_EQ(v.back(), "a");
  EXPECT_EQ(v.data(), &v[0]);
}

TEST(InlineVec, IsMadeOfAListOrANumber) {
  using Vec = InlineVec<std::string, 3>;
  const auto texts = [](const Vec& v) {
    return std::vector<std::string>(v.begin(), v.end());
  };
  const std::vector<std::string> list{"a", std::string(100, 'b')};
  EXPECT_EQ(texts({"a", std::string(100, 'b')}), list);
  EXPECT_EQ(texts(list), list);
  EXPECT_EQ(texts(Vec(2)), std::vector<std::string>(2));
  EXPECT_TRUE(Vec{}.empty());
  Vec from = list;
  const Vec to = std::move(from);
  EXPECT_EQ(texts(to), list);
  EXPECT_TRUE(from.empty());
}

TEST(InlineVec, DestroysItsElements) {
  const auto counted = std::make_shared<int>();
  {
    InlineVec<std::shared_ptr<int>, 4> v;
    for (int i = 0; i < 3; ++i) v.push_back(counted);
    EXPECT_EQ(counted.use_count(), 4);
    v.resize(2);
    EXPECT_EQ(counted.use_count(), 3);
  }
  EXPECT_EQ(counted.use_count(), 1);
  // Elements copied from a list that is too long are destroyed, too.
  EXPECT_THROW((InlineVec<std::shared_ptr<int>, 1>{counted, counted}), Error);
  EXPECT_EQ(counted.use_count(), 1);
}

TEST(InlineVec, RefusesOneMoreThanItHolds) {
  InlineVec<int, 2> v;
  v.resize(2);
  EXPECT_EQ(testing::error_of([&] { v.push_back(1); }),
            "[inline_vec] a list of at most 2 elements gets one more, which is "
            "an error in dtensor; report it");
  EXPECT_EQ(v.size(), 2u);
}

}  // namespace
}  // namespace dtensor
