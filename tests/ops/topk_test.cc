#include <gtest/gtest.h>

#include "dtensor/comm_event.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/rank_context.h"
#include "tests/ops/structured_testing.h"

namespace dtensor::testing {
namespace {

// No two elements of a row are equal.
const Array kX{{2, 5},
               {3, -1, 4, 1.5, -5,  //
                0.5, 2, -3, 7, 6}};

TEST(TopK, ValuesAndIndicesInEveryLayout) {
  for (const char* layout : {"R,R", "S0,R", "S1,R", "S0,S1", "S1,S1", "P,S1"})
    on_mesh("a=2,b=3", [&](const Mesh& mesh) {
      const DistTensor x = put(kX, mesh).redistribute(layout).detach();
      const TopK best = topk(x, 2);
      EXPECT_EQ(array_of(best.values.full()).v,
                (std::vector<double>{4, 3, 7, 6}))
          << layout;
      EXPECT_EQ(best.indices.full().to_integers(),
                (std::vector<int64_t>{2, 0, 3, 4}))
          << layout;
      const TopK least = topk(x, 1, 0, false);
      EXPECT_EQ(array_of(least.values.full()).v,
                (std::vector<double>{0.5, -1, -3, 1.5, -5}))
          << layout;
      EXPECT_EQ(least.indices.full().to_integers(),
                (std::vector<int64_t>{1, 0, 1, 0, 0}))
          << layout;
    });
}

// A rank that holds several ranges of a row, as of a fused weight.
TEST(TopK, OfSeveralRanges) {
  std::vector<double> row;
  for (int i = 0; i < 14; ++i) row.push_back(i * 5 % 14);  // 0, 5, 10, 1, ...
  on_mesh("a=2", [&](const Mesh& mesh) {
    Layout l;
    const Split halves = Split::over({0});
    l.dims = {Dim(1),
              Dim::concat({Dim(4, halves), Dim(4, halves), Dim(6, halves)})};
    const DistTensor x = put({{1, 14}, row}, mesh).redistribute(mesh, l);
    EXPECT_EQ(x.region()[1].size(), 3u);
    const TopK best = topk(x, 14);
    for (int i = 0; i < 14; ++i) {
      EXPECT_EQ(best.values.full().at(i), 13 - i);
      EXPECT_EQ(best.indices.full().at(i), (13 - i) * 3 % 14);
    }
    const TopK two = topk(x, 2, -1, false);
    EXPECT_EQ(array_of(two.values.full()).v, (std::vector<double>{0, 1}));
    EXPECT_EQ(two.indices.full().to_integers(), (std::vector<int64_t>{0, 3}));
  });
}

TEST(TopK, OfEqualElementsTheFirst) {
  on_mesh("a=3", [](const Mesh& mesh) {
    for (const char* layout : {"R", "S0"}) {
      const TopK best = topk(full({7}, 2, mesh, layout), 3);
      EXPECT_EQ(best.indices.full().to_integers(),
                (std::vector<int64_t>{0, 1, 2}))
          << layout;
    }
  });
}

TEST(TopK, GradientGoesWhereTheyWere) {
  Problem p;
  p.inputs = {kX};
  p.function = [](const std::vector<DistTensor>& x) {
    const DistTensor best = topk(x[0], 2).values;
    return best * best;  // so that a second derivative takes them, too
  };
  p.reference = [](const std::vector<Array>& x) {
    Array y = zeros_like({2, 2});
    for (int64_t r = 0; r < 2; ++r) {
      std::vector<double> row;
      for (int64_t i = 0; i < 5; ++i) row.push_back(x[0].at(5 * r + i));
      std::sort(row.begin(), row.end(), std::greater<>());
      y.at(2 * r) = row[0] * row[0];
      y.at(2 * r + 1) = row[1] * row[1];
    }
    return y;
  };
  check_problem(p, {{"x=2", {"S1"}},
                    {"x=3", {"S0"}},
                    {"x=2,y=3", {"S0,S1"}},
                    {"x=2,y=3", {"S1,S1"}},
                    {"x=2", {"P"}}});
}

// A candidate and its place for each row and rank, not the rows.
TEST(TopK, SplitRowsAreNotGathered) {
  on_mesh("a=4", [](const Mesh& mesh) {
    const DistTensor x = randn({7, 400}, mesh, "S1", DType::kF32, {1, 1});
    RankContext& context = RankContext::current();
    context.record = true;
    topk(x, 2);
    int64_t bytes = 0;
    for (const CommEvent& e : context.events) {
      EXPECT_EQ(e.predicted, e.counted);
      bytes += e.counted;
    }
    EXPECT_EQ(bytes, 3 * 7 * 2 * (4 + 8));
  });
}

TEST(TopK, BadInput) {
  EXPECT_EQ(error_of(2,
                     [](const Mesh& m) {
                       topk(full({3, 4}, 0, m), 5);
                     }),
            "[topk] k is 5, but a row of [3, 4] has 4 elements; write 0 to 4");
  EXPECT_EQ(
      error_of(
          1, [](const Mesh& m) { topk(full({3}, 1, m, {}, DType::kBool), 1); }),
      "[topk] bools have no order; write cast(x, DType::kI32)");
}

}  // namespace
}  // namespace dtensor::testing
