// SPDX-License-Identifier: Apache-2.0
// Guards a fix: memory that MPI shares between processes may begin anywhere,
// such as 8 bytes after the beginning of a cache line. Rings have to begin with
// a cache line, and did not.
#include "dtensor/comm/ring.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace dtensor {
namespace {

TEST(RingsAreAligned, WhereverMemoryBegins) {
  for (const size_t rings : {size_t{1}, size_t{3}}) {
    std::vector<char> memory(bytes_of_rings(rings) + 2 * alignof(Ring));
    for (size_t begin = 0; begin <= alignof(Ring); ++begin) {
      char* const from = memory.data() + begin;
      const auto* first = reinterpret_cast<const char*>(first_ring(from));
      ASSERT_NE(first, nullptr);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % alignof(Ring), 0u);
      EXPECT_GE(first, from);
      EXPECT_LE(first + rings * sizeof(Ring), from + bytes_of_rings(rings));
    }
  }
}

}  // namespace
}  // namespace dtensor
