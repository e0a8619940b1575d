// SPDX-License-Identifier: Apache-2.0
// Guards a fix: after a run, each mesh with a new name left 4 KB behind, the
// specs of all tensors on it, and an entry in lists that every operator
// searches.
#include "dtensor/rank_context.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <string>
#include <vector>

#include "dtensor/dtensor.h"
#include "dtensor/placement/bounded_cache.h"

namespace dtensor {
namespace {

Mesh numbered(int64_t i) { return Mesh({{"m" + std::to_string(i), 2}}); }

// Each rank moves a tensor on each of these meshes.
void run_on_meshes(int64_t first, int64_t count) {
  run(2, [&](Runtime&) {
    for (int64_t i = first; i < first + count; ++i) {
      const Mesh mesh = numbered(i);
      const auto x = ones({4, 4}, mesh, "S0").redistribute("S1");
      ASSERT_EQ(sum(x).item(), 16);
    }
  });
}

TEST(MeshesEnd, ARunLeavesNoSpec) {
  run_on_meshes(0, 50);
  EXPECT_LE(Spec::use().entries, 5u);
}

// Memory of the process's heap; 0 under a sanitizer, which has a heap of its
// own.
size_t heap_bytes() { return mallinfo2().uordblks; }

TEST(MeshesEnd, ARunLeavesNoMemory) {
  if (heap_bytes() == 0) GTEST_SKIP() << "the heap does not count its bytes";
  const size_t before = heap_bytes();
  run_on_meshes(0, 2000);
  // A mesh itself stays, without its tensors' specs.
  EXPECT_LT(heap_bytes(), before + 2000 * 1000)
      << (heap_bytes() - before) / 2000 << " bytes a mesh";
}

TEST(MeshesEnd, ARankRemembersABoundedNumber) {
  const Mesh kept = numbered(-1);
  run(2, [&](Runtime& rt) {
    const RankContext& ctx = rt.context();
    const auto x = ones({4, 4}, kept, "S0");
    for (int64_t i = 0; i < 500; ++i) {
      const auto y = ones({4, 4}, numbered(i), "S0");
      ASSERT_EQ(sum(y.redistribute("S1")).item(), 16);
      ASSERT_LE(ctx.cache.coordinates.size(), 200u);
      ASSERT_LE(ctx.cache.communicators.size(), 200u);
    }
    // A mesh that was forgotten can be used again.
    EXPECT_EQ(sum(x.redistribute("S1")).item(), 16);
    EXPECT_EQ(x.mesh(), numbered(-1));
  });
}

// The coordinate of the oldest mesh in the list stays valid when others are
// added.
TEST(MeshesEnd, ACoordinateOutlivesTheNextOne) {
  run(2, [&](Runtime& rt) {
    RankContext& ctx = rt.context();
    for (int64_t i = 0; i < 200; ++i) ctx.coordinate(numbered(i));
    for (int64_t first = 200; first < 600; first += 2) {
      const auto& all = ctx.cache.coordinates;
      const Mesh oldest = all.front().mesh;
      const Coord& at = ctx.coordinate(oldest);
      ctx.coordinate(numbered(first));
      ctx.coordinate(numbered(first + 1));
      ASSERT_EQ(&at, ctx.coordinate_or_null(oldest));
      EXPECT_EQ(at[0], rt.rank());
    }
  });
}

}  // namespace
}  // namespace dtensor
