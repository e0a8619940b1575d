// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/hash.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace dtensor {
namespace {

// Processes of a job compare hashes, so a change is a change of the protocol.
TEST(Hash, KnownNumbers) {
  static_assert(hash_mix(0, 0) == 16294208416658607535ull);
  static_assert(hash_text("") == hash_mix(0, 0));
  static_assert(hash_text("dp") == 4001989079343704267ull);
}

TEST(Hash, DependsOnOrderAndLength) {
  std::set<uint64_t> all;
  for (const char* text : {"", "a", "b", "ab", "ba", "aa", "aaa"})
    all.insert(hash_text(text));
  all.insert(hash_text("a", 1));
  all.insert(hash_text(std::string(1, '\0')));
  EXPECT_EQ(all.size(), 9u);
}

// Half of the bits change with any bit of either argument.
TEST(Hash, EveryBitCounts) {
  int64_t changed = 0;
  for (int bit = 0; bit < 64; ++bit) {
    const uint64_t one = uint64_t{1} << bit;
    changed += __builtin_popcountll(hash_mix(7, 9) ^ hash_mix(7 ^ one, 9));
    changed += __builtin_popcountll(hash_mix(7, 9) ^ hash_mix(7, 9 ^ one));
  }
  EXPECT_NEAR(static_cast<double>(changed) / (2 * 64), 32, 2);
}

}  // namespace
}  // namespace dtensor
