// SPDX-License-Identifier: Apache-2.0
// Moves that nobody waited for piled up with the tensors that they read, as a
// rank could begin any number of them ahead of what was carried out.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "dtensor/allocator.h"
#include "dtensor/dtensor.h"
#include "dtensor/rank_context.h"

namespace dtensor {
namespace {

TEST(MovesBegunAhead, AreBounded) {
  constexpr int kMoves = 2000;
  constexpr int64_t kPart = 64 * 64 * 4;
  int64_t peak = 0;
  run(2, [&](Runtime& rt) {
    const Mesh mesh = Mesh::parse("a=2");
    const DistTensor x = randn({128, 64}, mesh, "S0");
    // The other one cannot carry out anything alone.
    if (rt.rank() == 1)
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    for (int i = 0; i < kMoves; ++i) (x + i).redistribute_async("R");
    x.redistribute_async("R").local();
    if (rt.rank() == 0)
      peak = RankContext::current().allocator->stats().peak_bytes;
  });
  std::printf("%ld parts at once\n", static_cast<long>(peak / kPart));
  EXPECT_GT(peak, 3 * kPart);
  EXPECT_LT(peak, 300 * kPart);
}

}  // namespace
}  // namespace dtensor
