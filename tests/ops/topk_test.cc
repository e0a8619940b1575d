// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

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
    // Fewer than any range has.
    const TopK one = topk(x, 1);
    EXPECT_EQ(one.values.item(), 13);
    EXPECT_EQ(one.indices.item<int64_t>(), 11);
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
    return best * best;  // so that there is a second derivative
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

// Ranks exchange their candidates and the places of these, not the rows.
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
            "[topk] k is 5, but dimension 1 of f32[3, 4](R) has size 4; write "
            "0 to 4");
  EXPECT_EQ(
      error_of(
          1, [](const Mesh& m) { topk(full({3}, 1, m, {}, DType::kBool), 1); }),
      "[topk] bools have no order; write cast(x, DType::kI32)");
}

const double kNaN = std::nan("");

// As in torch, argmax and argmin find a NaN, or the first of equal elements.
// sort() puts NaNs last.
TEST(TopK, NaNsAndEqualElements) {
  const Array x{{6}, {2, 5, kNaN, 5, -1, -1}}, y{{6}, {2, 5, 0, 5, -1, -1}};
  for (const char* layout : {"R,R", "S0,R", "R,S0", "S0,S0"})
    on_mesh("a=2,b=2", [&](const Mesh& mesh) {
      const DistTensor with = put(x, mesh, layout),
                       without = put(y, mesh, layout);
      EXPECT_EQ(argmax(with).item(), 2);
      EXPECT_EQ(argmin(with, 0).item(), 2);
      EXPECT_EQ(argmax(without, -1).item(), 1);
      EXPECT_EQ(argmin(without).item(), 4);
      const TopK up = sort(with);
      EXPECT_EQ(up.indices.full().to_integers(),
                (std::vector<int64_t>{4, 5, 0, 1, 3, 2}));
      EXPECT_TRUE(std::isnan(up.values.full().at(5)));
      EXPECT_EQ(argsort(with, 0, true).full().to_integers(),
                (std::vector<int64_t>{2, 1, 3, 0, 4, 5}));
    });
}

// argmax() returns an index into the flat tensor, which no rank gathers.
TEST(TopK, ArgmaxOfAllSendsOneElementOfEachRow) {
  on_mesh("a=4", [](const Mesh& mesh) {
    const DistTensor x = randn({7, 400}, mesh, "S1", DType::kF32, {1, 1});
    const Tensor whole = x.full();
    int64_t best = 0;
    for (int64_t i = 0; i < 7 * 400; ++i)
      if (whole.at(i) > whole.at(best)) best = i;
    RankContext& context = RankContext::current();
    context.record = true;
    EXPECT_EQ(argmax(x).item(), static_cast<double>(best));
    int64_t bytes = 0;
    for (const CommEvent& e : context.events) bytes += e.counted;
    EXPECT_EQ(bytes, 3 * 7 * (4 + 8));
  });
}

TEST(Multinomial, DrawsInProportion) {
  on_mesh("a=2", [](const Mesh& mesh) {
    const Array weights{{2, 4}, {1, 0, 2, 1, 5, 5, 0, 0}};
    for (const char* layout : {"R", "S0", "S1"}) {
      const DistTensor w = put(weights, mesh, layout);
      const std::vector<int64_t> drawn =
          multinomial(w, 4000, true, {3, 5}).full().to_integers();
      double times[2][4] = {};
      for (size_t i = 0; i < drawn.size(); ++i)
        times[i / 4000][drawn[i]] += 1.0 / 4000;
      for (int r = 0; r < 2; ++r)
        for (int j = 0; j < 4; ++j) {
          const double p = weights.at(4 * r + j) / (r == 0 ? 4 : 10);
          // Three standard deviations are 0.024.
          EXPECT_NEAR(times[r][j], p, p == 0 ? 0 : 0.03) << layout;
        }
      // Without replacement, each index that can be drawn is drawn once.
      std::vector<int64_t> few =
          multinomial(w, 2, false, {3, 6}).full().to_integers();
      std::sort(few.begin() + 2, few.end());
      EXPECT_EQ(few[2], 0);
      EXPECT_EQ(few[3], 1);
      EXPECT_NE(few[0], few[1]);
      EXPECT_NE(few[0], 1);
      EXPECT_NE(few[1], 1);
    }
  });
}

}  // namespace
}  // namespace dtensor::testing
