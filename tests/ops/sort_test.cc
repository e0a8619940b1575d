// SPDX-License-Identifier: Apache-2.0
// Compares sort() of rows that are split over ranks with std::stable_sort.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "dtensor/comm_event.h"
#include "dtensor/observer.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/rank_context.h"
#include "dtensor/scopes.h"
#include "tests/ops/structured_testing.h"
#include "tests/testing.h"

namespace dtensor::testing {
namespace {

using Values = std::vector<double>;

// NaNs are largest, and equal elements keep their order.
std::vector<int64_t> order_of(const Values& x, bool descending) {
  std::vector<int64_t> order(x.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto below = [](double a, double b) {
    return a < b || (std::isnan(b) && !std::isnan(a));
  };
  std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
    const double a = x[static_cast<size_t>(i)], b = x[static_cast<size_t>(j)];
    return descending ? below(b, a) : below(a, b);
  });
  return order;
}

void expect_sorted(const Values& x, const Mesh& mesh, const char* layout,
                   DType t) {
  const auto n = static_cast<int64_t>(x.size());
  const DistTensor given = put({{n}, x}, mesh, layout, t);
  const Tensor whole = given.full();
  for (bool descending : {false, true}) {
    const TopK got = sort(given, 0, descending);
    const Tensor values = got.values.full(), ids = got.indices.full();
    const std::vector<int64_t> want = order_of(x, descending);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t from = want[static_cast<size_t>(i)];
      ASSERT_EQ(ids.integer_at(i), from) << layout << " " << n << " at " << i;
      if (std::isnan(x[static_cast<size_t>(from)]))
        ASSERT_TRUE(std::isnan(values.at(i)));
      else
        ASSERT_EQ(values.at(i), whole.at(from));
    }
  }
}

TEST(Sort, AnyValuesInAnyPartsOfARow) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(),
                   kInf = std::numeric_limits<double>::infinity();
  std::mt19937 rng(7);
  for (const size_t n : {0, 1, 3, 10, 5000}) {
    std::vector<Values> all(6, Values(n));
    for (size_t i = 0; i < n; ++i) {
      all[0][i] = static_cast<double>(rng() % 1000) - 500;
      all[1][i] = static_cast<double>(rng() % 3) - 1;  // few different ones
      all[2][i] = static_cast<double>(i);              // in order
      all[3][i] = -static_cast<double>(i);
      all[4][i] = 2;
      all[5][i] = rng() % 2 ? 0.0 : -0.0;  // equal
    }
    for (const auto& [mesh, layout] : {std::pair{"x=2", "S0"},
                                       {"x=5", "S0"},
                                       {"x=3", "S0@0|1|200|5000"},
                                       {"x=2,y=3", "S0,S0"},
                                       {"x=2,y=2", "S0,R"}}) {
      if (std::string(layout).find('@') != std::string::npos && n < 5000)
        continue;
      on_mesh(mesh, [&](const Mesh& m) {
        for (const Values& x : all)
          for (DType t : {DType::kF64, DType::kF32, DType::kI64, DType::kI32})
            expect_sorted(x, m, layout, t);
        Values special = all[1];
        if (n > 4) special[1] = kNaN, special[2] = kInf, special[4] = -kInf;
        if (n > 9) special[6] = kNaN, special[7] = -0.0, special[9] = 0.0;
        for (DType t : {DType::kF64, DType::kBF16, DType::kF16})
          expect_sorted(special, m, layout, t);
      });
    }
  }
}

// A number that f64 cannot hold.
TEST(Sort, LargeIntegers) {
  on_mesh("x=3", [&](const Mesh& mesh) {
    constexpr int64_t kLarge = (int64_t{1} << 60) + 1;
    std::vector<int64_t> list;
    for (int64_t i = 0; i < 9; ++i) list.push_back(kLarge - i);
    const DistTensor x =
        DistTensor::from_global(Tensor::from({9}, list.data()), mesh, "S0");
    const Tensor values = sort(x).values.full();
    for (int64_t i = 0; i < 9; ++i)
      EXPECT_EQ(values.integer_at(i), kLarge - 8 + i);
  });
}

// A rank receives its share of the elements once, with their indices, and a few
// more at the ends of the ranges. A gathered row would be three quarters of all
// elements.
TEST(Sort, ARankReceivesItsShare) {
  for (const bool equal : {false, true})
    on_mesh("x=4", [&](const Mesh& mesh) {
      constexpr int64_t kSize = 40000;
      const DistTensor x =
          equal ? full({kSize}, 1, mesh, "S0")
                : randn({kSize}, mesh, "S0", DType::kF32, {1, 1});
      RankContext& context = RankContext::current();
      context.record = true;
      const TopK got = sort(x);
      EXPECT_EQ(got.values.layout(), x.layout());
      int64_t bytes = 0;
      for (const CommEvent& e : context.events) bytes += e.counted;
      EXPECT_LT(bytes, 1.3 * (equal ? 0.1 : 0.75) * kSize / 4 * (4 + 8));
    });
}

// The two groups of ranks that share a row exchange as much as each other.
TEST(Sort, KnowsWhatAllRanksReceive) {
  std::mt19937 gen(3);
  Array x{{3000}, {}};
  for (int i = 0; i < 3000; ++i)
    x.v.push_back(static_cast<double>(gen() % 999));
  std::atomic<int64_t> counted = 0, by_all = 0;
  on_mesh("a=3,b=2", [&](const Mesh& mesh) {
    const DistTensor split = put(x, mesh, "S0,R").as_parameter();
    const CommRecord record;
    sort(split);
    for (const CommEvent& e : record.events()) {
      counted += e.counted;
      EXPECT_LE(e.counted, e.predicted);
      if (RankContext::current().world_rank == 0) by_all += e.by_all;
    }
  });
  EXPECT_GT(counted, 0);
  EXPECT_EQ(by_all, counted);
}

TEST(Sort, RowsOfOneRankAreNotSent) {
  on_mesh("x=4", [&](const Mesh& mesh) {
    RankContext& context = RankContext::current();
    context.record = true;
    sort(randn({8, 400}, mesh, "S0", DType::kF32, {1, 1}));
    EXPECT_TRUE(context.events.empty());
  });
}

// Many rows over the same ranks: in order of rank, row and range.
TEST(Sort, RowsThatRanksShare) {
  on_mesh("x=4", [&](const Mesh& mesh) {
    const DistTensor x = randn({16, 4000}, mesh, "S1", DType::kF32, {1, 1});
    const TopK got = sort(x);
    EXPECT_EQ(got.values.layout(), x.layout());
    const Values all = array_of(x.full()).v;
    const Tensor values = got.values.full(), ids = got.indices.full();
    for (int64_t r = 0; r < 16; ++r) {
      const Values row(all.begin() + r * 4000, all.begin() + (r + 1) * 4000);
      const std::vector<int64_t> want = order_of(row, false);
      for (int64_t i = 0; i < 4000; ++i) {
        const int64_t from = want[static_cast<size_t>(i)];
        ASSERT_EQ(ids.integer_at(r * 4000 + i), from);
        ASSERT_EQ(values.at(r * 4000 + i), row[static_cast<size_t>(from)]);
      }
    }
  });
}

TEST(Sort, GradientsGoWhereTheValuesWere) {
  Problem p;
  p.inputs = {{{11}, {3, -1, 4, 1.5, -5, 0.5, 2, -3, 7, 6, 9}}};
  p.function = [](const std::vector<DistTensor>& x) {
    const DistTensor sorted = sort(x[0]).values;
    return sorted * sorted * arange(11, x[0].mesh(), {}, DType::kF64);
  };
  p.reference = [](const std::vector<Array>& x) {
    Array y = x[0];
    std::sort(y.v.begin(), y.v.end());
    for (size_t i = 0; i < y.v.size(); ++i)
      y.v[i] *= y.v[i] * static_cast<double>(i);
    return y;
  };
  check_problem(p, {{"x=1", {}}, {"x=3", {"S0"}}, {"x=2,y=2", {"S0,S0"}}});
}

// The price is that of the elements which a rank receives; what it may receive
// at most, if the values are uneven, is twice its part of values and indices.
TEST(Sort, PriceIsThatOfItsMessages) {
  RunOptions options;
  options.world = 4;
  options.cost.axes.resize(1);
  options.cost.axes[0].alpha_ps = 0;
  options.cost.axes[0].ps_per_byte = 1;
  run(options, [](Runtime& rt) {
    RankContext& context = rt.context();
    context.record = true;
    const DistTensor x =
        randn({40000}, rt.mesh(), "S0", DType::kF32, {1, 1}).as_parameter();
    int64_t price = 0, bytes = 0;
    {
      const OnOp observe(context, [&](const OpRan& op) {
        if (op.op == "sort") price = op.choice.comm_ps;
      });
      sort(x);
    }
    for (const CommEvent& e : context.events) bytes += e.counted;
    EXPECT_NEAR(static_cast<double>(price), static_cast<double>(bytes),
                0.05 * static_cast<double>(price));
    const ExplicitOnly only;
    const std::string want =
        "[sort] would have to communicate while it computes (all-to-all, "
        "240000 bytes)";
    EXPECT_EQ(
        dtensor::testing::error_of([&] { sort(x); }).substr(0, want.size()),
        want);
  });
}

TEST(Sort, BadInput) {
  EXPECT_EQ(
      error_of(
          2, [](const Mesh& m) { sort(full({4}, 1, m, "S0", DType::kBool)); }),
      "[sort] bools have no order; write cast(x, DType::kI32)");
}

}  // namespace
}  // namespace dtensor::testing
