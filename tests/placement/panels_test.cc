// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/panels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/placement/indices.h"

namespace dtensor {
namespace {

using testing::indices;

const Spec* spec(const Mesh& mesh, const Shape& shape, const char* layout) {
  return Spec::get(mesh, shape, parse_layout(layout, mesh, shape), DType::kF32);
}

// Two steps, so that there is something between.
std::vector<Step> by_way_of(const Spec* a, const Spec* b, const Spec* c) {
  return {{StepKind::kAllToAll, 3, a, b, ReduceOp::kSum, 0, 0, 0},
          {StepKind::kAllToAll, 3, b, c, ReduceOp::kSum, 0, 0, 1}};
}

TEST(Panels, HaveEveryIndexOnceAndFillEvenly) {
  const Mesh mesh = Mesh::parse("a=2,b=3");
  for (const Shape& shape :
       {Shape{12, 7, 5}, Shape{5, 7, 3}, Shape{1, 9, 2}, Shape{2, 1, 1}})
    for (int64_t count : {1, 2, 3, 5, 8, 40, 1000}) {
      SCOPED_TRACE(to_string(shape) + " in " + std::to_string(count));
      const auto steps =
          by_way_of(spec(mesh, shape, "S0,S1"), spec(mesh, shape, "S1,S0"),
                    spec(mesh, shape, "S2,S2"));
      const Panels p = cut_panels(steps, count);
      std::map<int64_t, int> seen;
      int64_t most = 0;
      for (const Region& r : p.regions) {
        for (const IntervalList& l : r)
          EXPECT_TRUE(std::is_sorted(l.begin(), l.end(),
                                     [](const Interval& x, const Interval& y) {
                                       return x.lo < y.lo;
                                     }));
        for (int64_t i : indices(r, shape)) ++seen[i];
        for (int64_t rank = 0; rank < 6; ++rank)
          most = std::max(
              most,
              volume(intersect(steps[0].to->region(mesh.coordinate(rank)), r)));
      }
      EXPECT_EQ(seen.size(), static_cast<size_t>(numel(shape)));
      for (const auto& [index, times] : seen) EXPECT_EQ(times, 1) << index;
      EXPECT_EQ(p.between_bytes, most * 4);
      EXPECT_EQ(p.finest, p.regions.size() < static_cast<size_t>(count));
      // The largest panel is about as small as this number of panels allows.
      int64_t whole = 0;
      for (int64_t rank = 0; rank < 6; ++rank)
        whole =
            std::max(whole, volume(steps[0].to->region(mesh.coordinate(rank))));
      EXPECT_LE(most, p.finest ? 1 : 2 * ((whole + count - 1) / count) + 1);
    }
}

TEST(Panels, CutTheOutermostDimensionThatIsLongEnough) {
  const Mesh mesh = Mesh::parse("a=2,b=2");
  const Shape shape{8, 64, 64};
  const auto steps =
      by_way_of(spec(mesh, shape, "S0,S1"), spec(mesh, shape, "S1,S0"),
                spec(mesh, shape, "S2,S1"));
  const Panels p = cut_panels(steps, 16);
  ASSERT_EQ(p.regions.size(), 16u);
  for (const Region& r : p.regions) {
    EXPECT_EQ(r[0], (IntervalList{{0, 8}}));
    EXPECT_EQ(r[2], (IntervalList{{0, 64}}));
    // One part each of the four that splits of the dimension meet in.
    EXPECT_EQ(length(r[1]), 4);
  }
  EXPECT_EQ(p.between_bytes, 4 * 2 * 64 * 4);
}

TEST(Panels, OfNothingAndOfOneElement) {
  const Mesh mesh = Mesh::parse("a=2,b=3");
  for (const Shape& shape : {Shape{}, Shape{0, 4}}) {
    const Spec* s = Spec::replicated(mesh, shape, DType::kF32);
    const Panels p = cut_panels(by_way_of(s, s, s), 7);
    size_t count = 0;
    for (const Region& r : p.regions) count += indices(r, shape).size();
    EXPECT_EQ(count, static_cast<size_t>(numel(shape)));
  }
}

// There are more panels than plan.chunks if parts are too uneven for so few.
TEST(Panels, FitIntoABlockWhereTheyCan) {
  const Mesh mesh = Mesh::parse("a=2,b=3");
  const Shape shape{5, 7, 3};
  Plan plan;
  plan.steps = by_way_of(spec(mesh, shape, "S0,S1"), spec(mesh, shape, "S1,S0"),
                         spec(mesh, shape, "S2,S2"));
  plan.chunks = 2;
  for (int64_t block : {1, 4, 12, 40, 100}) {
    const auto lists = panels(plan, 1, block);
    int64_t most = 0;
    for (const Region& r : lists[0])
      for (int64_t rank = 0; rank < 6; ++rank)
        most = std::max(
            most, 4 * volume(intersect(
                          plan.steps[0].to->region(mesh.coordinate(rank)), r)));
    EXPECT_LE(most, std::max<int64_t>(block, 4));
  }
  // One step leaves nothing between, and need not be cut.
  plan.steps.pop_back();
  EXPECT_TRUE(panels(plan, 1, 1)[0].empty());
}

}  // namespace
}  // namespace dtensor
