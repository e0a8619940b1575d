// SPDX-License-Identifier: Apache-2.0
// Values that are packed into the text of a message and read back.
#include "dtensor/comm/pack.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing.h"

namespace dtensor {
namespace {

TEST(PackTest, ValuesComeBack) {
  // Bytes that JSON does not allow in a text.
  const std::string bytes("\xff\0 \n\"", 5);
  const std::string text =
      pack("ended", ~uint64_t{0}, int64_t{-1}, true, bytes,
           std::vector<int64_t>{0, 1 << 20}, std::pair(2, std::string()),
           std::vector<std::pair<std::string, std::string>>{{"--lr", "1"}});
  std::string what, back;
  uint64_t large = 0;
  int64_t small = 0;
  bool own = false;
  std::vector<int64_t> ranks;
  std::pair<int, std::string> pair;
  std::vector<std::pair<std::string, std::string>> facts;
  unpack(text, what, large, small, own, back, ranks, pair, facts);
  EXPECT_EQ(what, "ended");
  EXPECT_EQ(large, ~uint64_t{0});
  EXPECT_EQ(small, -1);
  EXPECT_TRUE(own);
  EXPECT_EQ(back, bytes);
  EXPECT_EQ(ranks, (std::vector<int64_t>{0, 1 << 20}));
  EXPECT_EQ(pair, (std::pair<int, std::string>(2, "")));
  ASSERT_EQ(facts.size(), 1u);
  EXPECT_EQ(facts[0].first, "--lr");
  what.clear();
  unpack(text, what);  // the first ones only
  EXPECT_EQ(what, "ended");
}

TEST(PackTest, ADamagedTextIsAnError) {
  const std::string text = pack("left", 3);
  std::string what;
  int rank = 0, more = 0;
  for (const std::string& damaged :
       {std::string(), text.substr(0, text.size() - 1), text + "x",
        pack("left"), pack(3, "left")})
    EXPECT_EQ(testing::error_of([&] { unpack(damaged, what, rank); })
                  .find("[communicator] a message from another process cannot "
                        "be read: "),
              0u)
        << damaged;
  EXPECT_NE(testing::error_of([&] { unpack(text, what, rank, more); }),
            "no error");
}

}  // namespace
}  // namespace dtensor
