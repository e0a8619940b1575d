// SPDX-License-Identifier: Apache-2.0
// Extremes, medians, quantiles and modes of rows with ties and NaNs, in whole
// and in split rows.
#include "dtensor/ops/order.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "dtensor/comm_event.h"
#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/choose.h"
#include "dtensor/placement/cost.h"
#include "dtensor/rank_context.h"
#include "tests/ops/structured_testing.h"

namespace dtensor::testing {
namespace {

using Values = std::vector<double>;
using Ids = std::vector<int64_t>;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(),
                 kInf = std::numeric_limits<double>::infinity();

// Ties, infinities, one NaN, several, and nothing else.
const Array kRows{{5, 7}, {3,    1,    3,    2,    1,     1,    3,      //
                           -4,   kInf, 0,    kInf, -kInf, 7,    -kInf,  //
                           5,    kNaN, 2,    2,    9,     kNaN, 2,      //
                           kNaN, kNaN, kNaN, kNaN, kNaN,  kNaN, kNaN,   //
                           -1,   -2,   -3,   -4,   -5,    -6,   -7}};

void expect_same(const DistTensor& got, const Values& want,
                 const std::string& what) {
  const Values v = array_of(got.full()).v;
  ASSERT_EQ(v.size(), want.size()) << what;
  for (size_t i = 0; i < v.size(); ++i)
    EXPECT_TRUE(v[i] == want[i] || (std::isnan(v[i]) && std::isnan(want[i])))
        << what << ": element " << i << " is " << v[i] << ", not " << want[i];
}

// Checks indices and values, and that the gradient goes to these elements.
void expect_taken(const std::function<TopK(const DistTensor&, int)>& f,
                  const Ids& want, const std::string& what) {
  for (const auto& [mesh, layout] : {std::pair{"x=1", "R"},
                                     {"x=2", "S0"},
                                     {"x=3", "S1"},
                                     {"x=9", "S1"},
                                     {"x=2,y=2", "S1,S1"},
                                     {"x=2,y=2", "S0,S1"}})
    for (const bool across : {false, true})
      on_mesh(mesh, [&](const Mesh& m) {
        SCOPED_TRACE(what + " on " + layout);
        DistTensor x = put(kRows, m, layout);
        x.set_requires_grad();
        const TopK y = f(across ? transpose(x, 0, 1) : x, across ? 0 : 1);
        EXPECT_EQ(y.indices.full().to_integers(), want);
        Values values, slopes(35, 0);
        for (size_t r = 0; r < 5; ++r) {
          const size_t at = 7 * r + static_cast<size_t>(want[r]);
          values.push_back(kRows.v[at]);
          slopes[at] = static_cast<double>(r + 1);
        }
        expect_same(y.values, values, "values");
        GradOptions options;
        options.cotangent = put({{5}, {1, 2, 3, 4, 5}}, m);
        expect_same(grad(y.values, {x}, options)[0], slopes, "gradient");
      });
}

TEST(Order, TiesAndNaNs) {
  const auto kth = [](int64_t k) {
    return [k](const DistTensor& x, int d) { return kthvalue(x, k, d); };
  };
  expect_taken([](const DistTensor& x, int d) { return max(x, d); },
               {0, 1, 1, 0, 0}, "max");
  expect_taken([](const DistTensor& x, int d) { return min(x, d); },
               {1, 4, 1, 0, 6}, "min");
  expect_taken(kth(1), {1, 4, 2, 0, 6}, "kthvalue 1");
  expect_taken(kth(3), {5, 0, 6, 2, 4}, "kthvalue 3");
  expect_taken(kth(7), {6, 3, 5, 6, 0}, "kthvalue 7");
  expect_taken([](const DistTensor& x, int d) { return median(x, d); },
               {3, 2, 1, 0, 3}, "median");
  expect_taken([](const DistTensor& x, int d) { return nanmedian(x, d); },
               {3, 2, 6, 0, 3}, "nanmedian");
  expect_taken([](const DistTensor& x, int d) { return mode(x, d); },
               {5, 6, 6, 0, 6}, "mode");
}

// The smallest integer of a type has no negative.
TEST(Order, TheSmallestIntegers) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int32_t kLeast32 = std::numeric_limits<int32_t>::min();
  for (const char* layout : {"R", "S0"})
    on_mesh("x=3", [&](const Mesh& m) {
      const int64_t wide[] = {5, kLeast, 3, kLeast};
      const int32_t narrow[] = {5, kLeast32, 3, kLeast32};
      for (const Tensor& t :
           {Tensor::from(Shape{4}, wide), Tensor::from(Shape{4}, narrow)}) {
        const TopK least = min(DistTensor::from_global(t, m, layout), 0);
        EXPECT_EQ(least.values.full().integer_at(0), t.integer_at(1)) << layout;
        EXPECT_EQ(least.indices.item<int64_t>(), 1) << layout;
        EXPECT_EQ(argmin(DistTensor::from_global(t, m, layout)).item<int64_t>(),
                  1)
            << layout;
      }
    });
}

// Integers that f64 cannot hold, bools, and elements of half types.
TEST(Order, OtherTypes) {
  for (const char* layout : {"R", "S0"})
    on_mesh("x=3", [&](const Mesh& m) {
      constexpr int64_t kLarge = (int64_t{1} << 60) + 1;
      const Ids list = {kLarge, kLarge - 1, kLarge, kLarge + 1, -kLarge};
      const DistTensor x =
          DistTensor::from_global(Tensor::from({5}, list.data()), m, layout);
      EXPECT_EQ(max(x, 0).values.item<int64_t>(), kLarge + 1);
      EXPECT_EQ(min(x, 0).values.item<int64_t>(), -kLarge);
      EXPECT_EQ(median(x).item<int64_t>(), kLarge);
      EXPECT_EQ(nanmedian(x, 0).indices.item<int64_t>(), 0);
      EXPECT_EQ(mode(x).indices.item<int64_t>(), 2);
      EXPECT_EQ(kthvalue(x, 2).values.item<int64_t>(), kLarge - 1);
      const DistTensor bits =
          cast(put(integers({5}, {0, 1, 0, 1, 1}), m, layout), DType::kBool);
      EXPECT_EQ(max(bits, 0).values.dtype(), DType::kBool);
      EXPECT_EQ(max(bits, 0).indices.item<int64_t>(), 1);
      EXPECT_EQ(min(bits, 0, true).indices.full().to_integers(), Ids{0});
      const DistTensor half =
          put({{5}, {1, -2, kNaN, 8, -2}}, m, layout, DType::kBF16);
      EXPECT_EQ(min(half, 0).indices.item<int64_t>(), 2);
      EXPECT_EQ(nanmedian(half, 0).values.item<double>(), -2);
      EXPECT_EQ(mode(half).indices.item<int64_t>(), 4);
    });
}

TEST(Order, MedianOfAllElements) {
  for (const char* layout : {"R", "S0", "S1", "P(sum)"})
    on_mesh("x=2", [&](const Mesh& m) {
      const auto of = [&](const Values& v) {
        const Shape shape = {2, static_cast<int64_t>(v.size()) / 2};
        // The parts of a partial sum of infinities would be NaN.
        const bool finite = std::isfinite(v[0]);
        DistTensor x =
            put({shape, v}, m, finite || layout[0] != 'P' ? layout : "R");
        x.set_requires_grad();
        return x;
      };
      // Three times 0.1 is not 0.3 in f64.
      const DistTensor ties = of({0.1, 5, 0.1, -1, 0.1, 7});
      const DistTensor y = median(ties);
      EXPECT_EQ(y.item<double>(), 0.1);
      const double third = 1.0 / 3;
      expect_same(grad(y, {ties})[0], {third, 0, third, 0, third, 0}, layout);
      const DistTensor nans = of({kNaN, 5, 1, kNaN, 2, 5});
      EXPECT_TRUE(std::isnan(median(nans).item<double>()));
      expect_same(grad(median(nans), {nans})[0], {0.5, 0, 0, 0.5, 0, 0},
                  layout);
      EXPECT_EQ(nanmedian(nans).item<double>(), 2);
      expect_same(grad(nanmedian(nans), {nans})[0], {0, 0, 0, 0, 1, 0}, layout);
      const DistTensor ends = of({-kInf, -kInf, 1, 2});
      EXPECT_EQ(median(ends).item<double>(), -kInf);
      expect_same(grad(median(ends), {ends})[0], {0.5, 0.5, 0, 0}, layout);
      EXPECT_TRUE(std::isnan(median(zeros({0}, m)).item<double>()));
    });
}

TEST(Order, QuantilesBetweenElements) {
  using enum QuantileInterpolation;
  for (const char* layout : {"R", "S0", "S1"})
    on_mesh("x=3", [&](const Mesh& m) {
      DistTensor x = put({{2, 4}, {8, 2, 6, 4, 1, kNaN, 3, 2}}, m, layout);
      x.set_requires_grad();
      // q * 3 is 0.75 and 1.5; q * 2 is 0.5 and 1.
      DistTensor q = put({{2}, {0.25, 0.5}}, m);
      q.set_requires_grad();
      const struct {
        QuantileInterpolation how;
        Values all, without;  // [q, row]
      } cases[] = {
          {kLinear, {3.5, kNaN, 5, kNaN}, {3.5, 1.5, 5, 2}},
          {kLower, {2, kNaN, 4, kNaN}, {2, 1, 4, 2}},
          {kHigher, {4, kNaN, 6, kNaN}, {4, 2, 6, 2}},
          {kNearest, {4, kNaN, 6, kNaN}, {4, 1, 6, 2}},
          {kMidpoint, {3, kNaN, 5, kNaN}, {3, 1.5, 5, 2}},
      };
      for (const auto& c : cases) {
        SCOPED_TRACE(static_cast<int>(c.how));
        expect_same(quantile(x, q, 1, false, c.how), c.all, layout);
        expect_same(nanquantile(x, q, -1, false, c.how), c.without, layout);
        expect_same(nanquantile(x, 0.25, 1, false, c.how),
                    {c.without[0], c.without[1]}, layout);
      }
      const auto shape = [](const DistTensor& y) {
        return to_string(y.shape());
      };
      EXPECT_EQ(shape(quantile(x, q, 0)), "[2, 4]");
      EXPECT_EQ(shape(quantile(x, q, 1, true)), "[2, 2, 1]");
      EXPECT_EQ(shape(quantile(x, 0.5, 0, true)), "[1, 4]");
      EXPECT_EQ(shape(quantile(x, 0.5)), "[]");
      EXPECT_EQ(shape(quantile(x, 0.5, {}, true)), "[1, 1]");
      EXPECT_EQ(shape(quantile(x, q)), "[2]");
      EXPECT_EQ(shape(quantile(select(x, 0, 0), 1)), "[]");
      const std::vector<DistTensor> slopes =
          grad(sum(nanquantile(x, q, 1)), {x, q});
      expect_same(slopes[0], {0, 0.25, 0.5, 1.25, 0.5, 0, 0, 1.5}, layout);
      expect_same(slopes[1], {2 * 3 + 1 * 2, 2 * 3}, layout);
    });
}

TEST(Order, SortsTheFirstDimension) {
  on_mesh("x=3", [](const Mesh& m) {
    const DistTensor x = put({{3, 2}, {5, 1, 4, 3, 3, 2}}, m, "S0");
    expect_same(msort(x), {3, 1, 4, 2, 5, 3}, "columns");
  });
}

TEST(Order, Histogram) {
  for (const char* layout : {"R", "S0", "S1"})
    on_mesh("x=2", [&](const Mesh& m) {
      const DistTensor x =
          put({{2, 4}, {0, 1, 2, 3, 4, 0.999, -1, 4.001}}, m, layout);
      expect_same(histc(x, 4, 0, 4), {2, 1, 1, 2}, layout);
      expect_same(histc(x, 2), {4, 4}, layout);
      expect_same(histc(full_like(x, 3), 3), {0, 8, 0}, layout);
      const DistTensor ends = put({{2, 2}, {kNaN, kInf, 1, -kInf}}, m, layout);
      expect_same(histc(ends, 2, 0, 2), {0, 1}, layout);
      expect_same(histc(ends, 2), {kNaN, kNaN}, layout);
      expect_same(histc(zeros({0}, m), 2), {0, 0}, layout);
      // bf16 has no 299.
      const DistTensor half =
          put({{2, 2}, {0, 300, 298, 298}}, m, layout, DType::kBF16);
      Values bins(300, 0);
      bins[0] = bins[299] = 1;
      bins[298] = 2;
      const DistTensor counts = histc(half, 300, 0, 300);
      EXPECT_EQ(counts.dtype(), DType::kBF16);
      expect_same(counts, bins, "halves");
    });
}

// The indices of a row's elements in ascending order, NaNs last, equal elements
// in order of index.
Ids in_order(const Values& row) {
  Ids order(row.size());
  std::iota(order.begin(), order.end(), 0);
  const auto value = [&](int64_t i) { return row[static_cast<size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return value(a) < value(b) ||
           (!std::isnan(value(a)) && std::isnan(value(b)));
  });
  return order;
}

// Rows so long that ranks send counts instead of elements, in even and uneven
// parts, an empty part, and parts of several ranges.
TEST(Order, LongRowsAgainstALoop) {
  constexpr int64_t kSize = 30000;
  Array rows{{2, kSize}, {}};
  for (int64_t i = 0; i < 2 * kSize; ++i) {
    const double x = static_cast<double>(i);
    // Few values, so that many are equal; in the second row, some NaNs.
    rows.v.push_back(
        i > kSize && i % 7 == 0 ? kNaN : std::floor(200 * std::sin(x * x)) / 8);
  }
  std::vector<Values> row;
  std::vector<Ids> order;
  for (int r = 0; r < 2; ++r) {
    row.emplace_back(rows.v.begin() + r * kSize,
                     rows.v.begin() + (r + 1) * kSize);
    order.push_back(in_order(row.back()));
  }
  const auto numbers = static_cast<size_t>(std::count_if(
      row[1].begin(), row[1].end(), [](double v) { return !std::isnan(v); }));
  const auto check = [&](const TopK& got, const std::array<size_t, 2>& ranks) {
    const Ids ids = got.indices.full().to_integers();
    const Values values = array_of(got.values.full()).v;
    for (size_t r = 0; r < 2; ++r) {
      EXPECT_EQ(ids[r], order[r][ranks[r]]) << "row " << r;
      const double want = row[r][static_cast<size_t>(order[r][ranks[r]])];
      EXPECT_TRUE(values[r] == want || std::isnan(want)) << "row " << r;
    }
  };
  for (const auto& [mesh, layout] : {std::pair{"x=1", "R"},
                                     {"x=3", "S1"},
                                     {"x=3", "S1@0|0|17000|30000"},
                                     {"x=3", "S1(a=13000|2000|b=15000:a,b)"},
                                     {"x=2,y=2", "S0,S1"},
                                     {"x=2,y=2", "S1,S1"}})
    for (DType t : {DType::kF64, DType::kF32, DType::kBF16})
      on_mesh(mesh, [&](const Mesh& m) {
        SCOPED_TRACE(fmt::format("{} on {}, {}", layout, mesh, name(t)));
        DistTensor x = put(rows, m, layout, t);
        x.set_requires_grad();
        for (size_t k :
             {size_t{1}, size_t{12000}, size_t{27000}, size_t{30000}})
          check(kthvalue(x, static_cast<int64_t>(k), 1), {k - 1, k - 1});
        check(median(x, 1), {(kSize - 1) / 2, numbers});
        const TopK y = nanmedian(x, -1);
        check(y, {(kSize - 1) / 2, (numbers - 1) / 2});
        // The gradient goes to the element that was taken.
        const Values slopes = array_of(grad(sum(y.values), {x})[0].full()).v;
        for (size_t r = 0; r < 2; ++r)
          for (size_t i = 0; i < kSize; ++i)
            EXPECT_EQ(
                slopes[r * kSize + i],
                static_cast<int64_t>(i) ==
                    order[r][r == 0 ? (kSize - 1) / 2 : (numbers - 1) / 2]);
        if (t == DType::kBF16) return;
        const DistTensor q = put({{3}, {0.3, 1, 0.7}}, m, "", t);
        const Values got = array_of(nanquantile(x, q, 1).full()).v;
        for (size_t j = 0; j < 3; ++j)
          for (size_t r = 0; r < 2; ++r) {
            const size_t n = r == 0 ? kSize : numbers;
            const double at = (j == 0   ? 0.3
                               : j == 1 ? 1
                                        : 0.7) *
                              static_cast<double>(n - 1);
            const auto element = [&](double rank) {
              return row[r][static_cast<size_t>(
                  order[r][static_cast<size_t>(rank)])];
            };
            const double low = element(std::floor(at)),
                         high = element(std::ceil(at));
            EXPECT_NEAR(got[j * 2 + r],
                        low + (high - low) * (at - std::floor(at)), 1e-3)
                << "quantile " << j << " of row " << r;
          }
      });
}

// The largest elements of a split row take a few numbers from each rank. A
// median or a quantile of a long row takes counts of digits, and its gradient a
// few numbers.
TEST(Order, SplitRowsAreNotGathered) {
  on_mesh("x=4", [](const Mesh& m) {
    // In shorter rows, messages cost more than gathering.
    constexpr int64_t kSize = 400000;
    DistTensor x = randn({kSize}, m, "S0", DType::kF32, {1, 1});
    x.set_requires_grad();
    RankContext& context = RankContext::current();
    context.record = true;
    const auto bytes = [&](const auto& f) {
      context.events.clear();
      f();
      int64_t sum = 0;
      for (const CommEvent& e : context.events) sum += e.counted;
      return sum;
    };
    EXPECT_LT(bytes([&] { max(x, 0); }), 100);
    const int64_t sorts = bytes([&] { sort(x); });
    // Four rounds for the digits of an f32, and three for those of an index.
    const int64_t selects = 7 * all_reduce_elements(256, 4) * 4;
    EXPECT_LT(9 * selects, sorts);
    const auto expect_selects = [&](int64_t elements, const auto& f) {
      const int64_t sent = bytes(f);
      EXPECT_GE(sent, elements * selects);
      EXPECT_LT(sent, elements * selects + 200);
    };
    DistTensor y;
    expect_selects(1, [&] { y = median(x, 0).values; });
    EXPECT_LT(bytes([&] { grad(y, {x}); }), 100);
    expect_selects(1, [&] { nanmedian(x, 0); });
    expect_selects(1, [&] { kthvalue(x, kSize / 3); });
    expect_selects(2, [&] { quantile(x, 0.3, 0); });
    expect_selects(1, [&] {
      quantile(x, 0.3, 0, false, QuantileInterpolation::kNearest);
    });
    EXPECT_LT(bytes([&] { mode(x); }), sorts + 400);
    EXPECT_LT(bytes([&] { kthvalue(x, 3); }), 400);
    // The k smallest of each part have more bytes than the counts of digits.
    expect_selects(1, [&] { kthvalue(x, 5000); });
    // A sort sends less for so many elements, or for a short row: the price of
    // one is that of a rank's share of the row.
    const DistTensor many = full({20}, 0.5, m);
    EXPECT_LT(bytes([&] { quantile(x, many, 0); }), 2 * sorts);
    EXPECT_LT(bytes([&] { median(narrow(x, 0, 0, 400), 0); }), selects / 2);
    const DistTensor part = randn({40000}, m, "S0", DType::kF32, {1, 1}),
                     some = full({16}, 0.5, m);
    EXPECT_LT(bytes([&] {
                quantile(part, some, 0, false, QuantileInterpolation::kNearest);
              }),
              0.75 * 16 * static_cast<double>(selects));
  });
}

TEST(Order, NoRows) {
  on_mesh("x=2", [](const Mesh& m) {
    const DistTensor x = zeros({0, 3}, m, "S1");
    for (const DistTensor& y :
         {max(x, 1).values, min(x, 1).indices, median(x, 1).values,
          nanmedian(x, 1).indices, mode(x, 1).values, quantile(x, 0.5, 1),
          kthvalue(x, 3, 1).values})
      EXPECT_EQ(to_string(y.full().shape()), "[0]");
  });
}

TEST(Order, Dry) {
  RunOptions dry;
  dry.world = 4;
  dry.dry_run = true;
  run(dry, [](Runtime& rt) {
    DistTensor x = zeros({7, 9}, rt.mesh(), "S1");
    x.set_requires_grad();
    for (const DistTensor& y :
         {max(x, 1).values, median(x, 1).values, mode(x, 1).values,
          nanquantile(x, 0.5, 1), median(x), kthvalue(x, 2, 1).values})
      grad(sum(y), {x});
    histc(x);
  });
}

TEST(Order, Errors) {
  const auto error = [](const std::function<void(const DistTensor&)>& f) {
    return error_of(2, [&](const Mesh& m) { f(zeros({2, 0}, m)); });
  };
  const auto begins = [&](const std::string& text,
                          const std::function<void(const DistTensor&)>& f) {
    EXPECT_EQ(error(f).find(text), 0u) << error(f);
  };
  begins("[max] input 0 of 1, counted from 0, is an undefined tensor",
         [](const auto&) { max({}, 0); });
  begins("[quantile] input 0 of 1, counted from 0, is an undefined tensor",
         [](const auto&) { quantile({}, 0.5); });
  begins("[max] dimension 1 of f32[2, 0](R) is empty",
         [](const auto& x) { max(x, 1); });
  begins("[kthvalue] k is 3, but dimension 0 of ",
         [](const auto& x) { kthvalue(x, 3, 0); });
  begins("[median] bools have no order",
         [](const auto& x) { median(cast(x, DType::kBool), 0); });
  begins("[quantile] q is 1.5; write a number from 0 to 1",
         [](const auto& x) { quantile(x, 1.5, 0); });
  begins("[quantile] x is i64 and q is i64; cast",
         [](const auto& x) { quantile(cast(x, DType::kI64), 0.5, 0); });
  begins("[gather] index 2 is not in [0, 2)", [](const auto& x) {
    const DistTensor y = zeros({2}, x.mesh());
    quantile(y, full_like(y, 1.5), 0);
  });
  begins("[gather] index 7499 is not in [0, 5000)", [](const auto& x) {
    quantile(zeros({5000}, x.mesh(), "S0"), full({}, 1.5, x.mesh()), 0);
  });
  begins(
      "[quantile] has 16777217 elements to order, but f32 holds positions up "
      "to 16777216; cast x and q to f64",
      [](const auto& x) {
        quantile(zeros({(1 << 24) + 1}, x.mesh(), "S0"), 0.5);
      });
  begins("[histc] the range is from 2 to 1",
         [](const auto& x) { histc(x, 3, 2, 1); });
}

// The price of a selection in rows that stay split is that of the messages that
// a call sends: the counts of each digit, for each wanted rank of each row.
TEST(KthIndex, PriceIsThatOfItsMessages) {
  const OpList& all = all_ops();
  const auto found = std::find_if(all.begin(), all.end(), [](const Op* op) {
    return op->name() == "kth_index";
  });
  ASSERT_NE(found, all.end());
  const Op& op = **found;
  for (const auto& [mesh, rows, n, k, type] :
       std::vector<std::tuple<const char*, int64_t, int64_t, int64_t, DType>>{
           {"x=2", 3, 100, 2, DType::kF32},
           {"x=3", 1, 70000, 1, DType::kF64},
           {"x=4", 40, 1000, 5, DType::kBF16}})
    on_mesh(mesh, [&](const Mesh& m) {
      const DistTensor x = cast(randn({rows, n}, m, "S1"), type),
                       ranks = full({rows, k}, 7, m, "R", DType::kI64);
      Planner& planner = RankContext::current().planner;
      const OpInput in[] = {{x.spec(), Keep::kStay}, {ranks.spec()}};
      const DType i64 = DType::kI64;
      const Choice chosen =
          choose(op.bind({x.shape(), ranks.shape()}, {}), in, {&i64, 1},
                 op.facts().work, planner, op.name());
      const CommRecord record;
      apply1(op, {x, ranks}, {}, &chosen.assignment);
      int64_t price = 0;
      for (const CommEvent& e : record.events()) {
        EXPECT_LE(e.counted, e.predicted);
        price += planner.cost().collective_ps(e.kind, e.axes, e.predicted);
      }
      EXPECT_GT(price, 0);
      EXPECT_EQ(chosen.comm_ps, price) << mesh;
    });
}

}  // namespace
}  // namespace dtensor::testing
