// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/holders.h"

#include <gtest/gtest.h>

#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

const Mesh& mesh() {
  static const Mesh mesh = Mesh::parse("x=2,y=3,z=2");
  return mesh;
}

Dim leaf(int64_t n, std::vector<int> axes, int64_t granule = 1) {
  return Dim(n, Split::over(axes, granule));
}

std::vector<Dim> trees() {
  auto product = Dim::product, concat = Dim::concat;
  return {
      Dim(6),
      leaf(1, {0}),
      leaf(12, {0}),
      leaf(12, {1, 0}),
      leaf(5, {0, 1}),  // a part is empty
      leaf(12, {1}, 4),
      Dim(8, Split::at({0, 2}, {0, 1, 1, 5, 8}, mesh())),
      Dim(4, Split::at({0}, {0, 4, 4}, mesh())),  // all on one
      product({Dim(3), leaf(4, {0})}),
      product({leaf(6, {1}), Dim(2), leaf(4, {0})}),
      product({leaf(2, {2}), leaf(3, {1}), leaf(2, {0})}),
      product({leaf(5, {0}), leaf(7, {1})}),
      product({leaf(1, {0}), leaf(4, {2})}),
      concat({leaf(8, {0}), leaf(4, {0}), leaf(4, {0})}),
      concat({leaf(4, {0}), Dim(3), leaf(6, {1, 0})}),
      concat({leaf(4, {0}), leaf(4, {0})}),  // a product
      concat({leaf(4, {0}), leaf(4, {2})}),
      concat({Dim(0), product({Dim(2), leaf(4, {1})}), leaf(8, {1})}),
      product({Dim(2), concat({leaf(4, {0}), leaf(2, {1})})}),
      product({concat({leaf(2, {2}), Dim(2)}), leaf(3, {1})}),
  };
}

int32_t label(const Wave& w, int64_t index) {
  size_t r = 0;
  while (w.runs[r].end <= index % w.period()) ++r;
  return w.runs[r].label;
}

TEST(Holders, SayWhoHoldsEveryIndex) {
  for (const Dim& d : trees()) {
    const Holders h = holders_of(d, mesh());
    ASSERT_EQ(h.size, d.size());
    for (int64_t rank = 0; rank < mesh().num_ranks(); ++rank) {
      const Coord at = mesh().coordinate(rank);
      IntervalList list;
      d.intervals(mesh(), at, list);
      for (int64_t i = 0; i < d.size(); ++i) {
        bool holds = false, should = true;
        for (const Interval& r : list) holds |= r.lo <= i && i < r.hi;
        for (const Wave& w : h.waves)
          should &= label(w, i) == Wave::kAny || label(w, i) == at[w.axis];
        EXPECT_EQ(holds, should) << "rank " << rank << ", index " << i;
      }
    }
  }
}

TEST(Holders, HaveTheShortestPeriods) {
  for (const Dim& d : trees())
    for (const Wave& w : holders_of(d, mesh()).waves) {
      EXPECT_FALSE(w.any());
      EXPECT_EQ(d.size() % w.period(), 0);
      for (int64_t shorter = 1; shorter < w.period(); ++shorter) {
        bool repeats = d.size() % shorter == 0;
        for (int64_t i = shorter; i < d.size() && repeats; ++i)
          repeats = label(w, i) == label(w, i - shorter);
        EXPECT_FALSE(repeats) << shorter << " and not " << w.period();
      }
    }
}

TEST(Holders, AreCutWhereEveryAxisIsOfOneSide) {
  for (const Dim& d : trees()) {
    const Holders h = holders_of(d, mesh());
    const int64_t largest = largest_cut(h);
    bool any = false;
    for (int64_t inner = 1; inner <= h.size; ++inner) {
      if (h.size % inner != 0) continue;
      bool product = true;
      for (const Wave& w : h.waves) {
        bool of_outer = true, of_inner = true;
        for (int64_t i = 0; i < h.size; ++i) {
          of_outer &= label(w, i) == label(w, i / inner * inner);
          of_inner &= label(w, i) == label(w, i % inner);
        }
        product &= of_outer || of_inner;
      }
      const auto both = cut(h, inner);
      ASSERT_EQ(both.has_value(), product) << inner << " of " << h.size;
      if (!both) continue;
      EXPECT_EQ(both->second.size, inner);
      EXPECT_EQ(times(both->first, both->second), h);
      if (inner == h.size || both->second.whole()) continue;
      any = true;
      if (inner <= largest) continue;
      for (const Wave& w : h.waves) EXPECT_EQ(largest % w.period(), 0);
    }
    EXPECT_EQ(largest > 0, any);
    if (any) {
      EXPECT_FALSE(cut(h, largest)->second.whole());
    }
  }
}

TEST(Holders, RefuseAnAxisInTwoPartsOfAProduct) {
  EXPECT_THROW(
      holders_of(Dim::product({leaf(2, {0}), leaf(4, {0, 1})}), mesh()), Error);
}

}  // namespace
}  // namespace dtensor
