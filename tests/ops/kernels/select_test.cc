// SPDX-License-Identifier: Apache-2.0
// Compares the largest elements, and elements by index, with naive references.
#include "dtensor/ops/kernels/select.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/ops/kernels/testing.h"

namespace dtensor::kernels {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr DType kOrdered[] = {DType::kF32, DType::kF64, DType::kBF16,
                              DType::kF16, DType::kI32, DType::kI64};

// A full, stable sort of the row by value; NaN above all.
std::vector<int64_t> sorted(const std::vector<double>& row, bool largest) {
  std::vector<int64_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](int64_t i) {
    const double v = row[static_cast<size_t>(i)];
    const double up =
        std::isnan(v) ? std::numeric_limits<double>::infinity() : v;
    return std::pair(largest ? -up : up, std::isnan(v) ? !largest : largest);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return key(a) < key(b); });
  return order;
}

TEST(TopKRows, AgainstAFullSort) {
  constexpr int64_t kRows = 3;
  for (DType t : kOrdered)
    for (int64_t n : {1, 2, 7, 70, 300})
      for (int64_t k : {int64_t{0}, int64_t{1}, std::min<int64_t>(n, 5), n})
        for (bool largest : {true, false}) {
          const int64_t stride = n + 3;
          // Few different values, so that many are equal.
          Elements x = Elements::random(t, kRows * stride, -4, 4);
          for (int64_t i = 0; i < x.size(); ++i) x.set(i, std::floor(x[i]));
          if (is_float(t) && n > 2) x.set(1, kNaN);
          Elements values(t, kRows * k, 9);
          std::vector<int64_t> ids(static_cast<size_t>(kRows * k), -1);
          run(TopK{.x = matrix(x, kRows, n, stride),
                   .first = 10,
                   .k = k,
                   .largest = largest,
                   .values = values.data(),
                   .value_ids = ids.data()});
          for (int64_t r = 0; r < kRows; ++r) {
            std::vector<double> row;
            for (int64_t i = 0; i < n; ++i) row.push_back(x[r * stride + i]);
            const std::vector<int64_t> order = sorted(row, largest);
            for (int64_t j = 0; j < k; ++j) {
              const int64_t want = order[static_cast<size_t>(j)];
              ASSERT_EQ(ids[static_cast<size_t>(r * k + j)], want + 10)
                  << name(t) << " " << n << " " << k << " " << largest;
              const double v = row[static_cast<size_t>(want)];
              if (std::isnan(v))
                ASSERT_TRUE(std::isnan(values[r * k + j]));
              else
                ASSERT_EQ(values[r * k + j], v);
            }
          }
        }
}

// Equal elements come in the order of their ids, wherever they lie.
TEST(TopKRows, IdsOfTheirOwn) {
  const Elements x(DType::kF32, {1, 5, 5, 0, 2, 2, 2, 2});
  const std::vector<int64_t> ids{0, 9, 3, 4, 7, 1, 8, 2};
  Elements values(DType::kF32, 4);
  std::vector<int64_t> got(4);
  run(TopK{.x = matrix(x, 2, 4),
           .ids = ids.data(),
           .k = 2,
           .values = values.data(),
           .value_ids = got.data()});
  EXPECT_EQ(values.doubles(), (std::vector<double>{5, 5, 2, 2}));
  EXPECT_EQ(got, (std::vector<int64_t>{3, 9, 1, 2}));
}

// Takes all of many elements, which sorts them.
TEST(TopKRows, IdsOfTheirOwnSorted) {
  constexpr int64_t kN = 200;
  const Elements x(DType::kI32, 2 * kN, 3);
  std::vector<int64_t> ids, got(2 * kN), want;
  for (int64_t i = 0; i < 2 * kN; ++i) ids.push_back(2 * kN - i);
  Elements values(DType::kI32, 2 * kN);
  run(TopK{.x = matrix(x, 2, kN),
           .ids = ids.data(),
           .k = kN,
           .values = values.data(),
           .value_ids = got.data()});
  for (int64_t i = 0; i < 2 * kN; ++i)
    want.push_back((i < kN ? kN : 0) + i % kN + 1);
  EXPECT_EQ(got, want);
}

TEST(TakeRows, ElementsOrZero) {
  for (DType t : kAll) {
    const Elements x(t, {1, 0, 1, 9, 0, 1, 0, 9});  // rows of 3, stride 4
    const std::vector<int64_t> index{5, 4, 7, 8, 6, 6, -1, 8};
    Elements out(t, 8, 1);
    std::vector<int64_t> ends(2, 5);
    run(TakeRows{.x = matrix(x, 2, 3, 4),
                 .k = 4,
                 .index = index.data(),
                 .lo = 5,
                 .hi = 8,
                 .out = out.data(),
                 .ends = ends.data()});
    EXPECT_EQ(out.doubles(), (std::vector<double>{1, 0, 1, 0, 1, 1, 0, 0}))
        << name(t);
    EXPECT_EQ(ends, (std::vector<int64_t>{8, ~-1}));
  }
}

TEST(PutRows, AddsWhatMeets) {
  for (DType t : kOrdered) {
    const Elements dy(t,
                      {1, 2, 3, 9, 4, 5, 6, 9});  // rows of 3, and one beyond
    const std::vector<int64_t> index{2, 2, 0, 1, 9, 2};
    Elements dx(t, 6, 7);
    std::vector<int64_t> ends(2, 5);
    PutRows put{.dy = matrix(dy, 2, 3, 4),
                .index = index.data(),
                .hi = 3,
                .dx = dx.data(),
                .ends = ends.data()};
    run(put);
    EXPECT_EQ(ends, (std::vector<int64_t>{9, ~9}));
    EXPECT_EQ(dx.doubles(), (std::vector<double>{3, 0, 3, 0, 4, 6})) << name(t);
    put.lo = 1;
    run(put);
    EXPECT_EQ(ends, (std::vector<int64_t>{9, ~0}));
    EXPECT_EQ((std::vector<double>{dx[0], dx[1], dx[2], dx[3]}),
              (std::vector<double>{0, 3, 4, 6}))
        << name(t);
  }
}

// Many elements are added at the same place; their order shows in the bits.
TEST(PutRows, AddsInOrder) {
  constexpr int64_t kRows = 5, kEach = 200, kStride = 203, kLo = 2, kHi = 19;
  std::vector<int64_t> index(kRows * kEach);
  for (size_t i = 0; i < index.size(); ++i)
    index[i] = static_cast<int64_t>(i * i * 7 + i / 3) % 23;
  for (DType t : kOrdered) {
    Elements dy = Elements::random(t, kRows * kStride, -9, 9), one(t, 1);
    std::vector<double> want(kRows * (kHi - kLo));
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t j = 0; j < kEach; ++j) {
        const int64_t id = index[static_cast<size_t>(r * kEach + j)];
        if (id < kLo || id >= kHi) continue;
        double& sum = want[static_cast<size_t>(r * (kHi - kLo) + id - kLo)];
        one.set(0, sum + dy[r * kStride + j]);
        sum = one[0];
      }
    Elements dx(t, static_cast<int64_t>(want.size()), 7);
    run(PutRows{.dy = matrix(dy, kRows, kEach, kStride),
                .index = index.data(),
                .lo = kLo,
                .hi = kHi,
                .dx = dx.data()});
    EXPECT_EQ(dx.doubles(), want) << name(t);
  }
}

// The other kinds combine with what is there.
TEST(PutRows, Combines) {
  const std::vector<int64_t> index{2, 2, 0, 1, 9, 2};
  const auto put = [&](ReduceKind kind, DType t, double first) {
    const Elements dy(t, {first, 2, 3, 9, 4, 5, -6, 9});
    Elements dx(t, {7, -1, 3, 0, 2, 3});
    run(PutRows{.kind = kind,
                .accumulate = true,
                .dy = matrix(dy, 2, 3, 4),
                .index = index.data(),
                .hi = 3,
                .dx = dx.data()});
    return dx.doubles();
  };
  for (DType t : kOrdered) {
    EXPECT_EQ(put(ReduceKind::kSum, t, 5),
              (std::vector<double>{10, -1, 10, 0, 6, -3}))
        << name(t);
    EXPECT_EQ(put(ReduceKind::kMax, t, 5),
              (std::vector<double>{7, -1, 5, 0, 4, 3}))
        << name(t);
    EXPECT_EQ(put(ReduceKind::kMin, t, 5),
              (std::vector<double>{3, -1, 2, 0, 2, -6}))
        << name(t);
    EXPECT_EQ(put(ReduceKind::kProd, t, 5),
              (std::vector<double>{21, -1, 30, 0, 8, -18}))
        << name(t);
    if (!is_float(t)) continue;
    for (ReduceKind kind : {ReduceKind::kMax, ReduceKind::kMin})
      EXPECT_TRUE(std::isnan(put(kind, t, kNaN)[2])) << name(t);
  }
}

TEST(LastPlaces, OfManyAgainstALoop) {
  constexpr int64_t kRows = 4, kEach = 150, kStride = 151, kLo = 1, kHi = 90;
  std::vector<int64_t> index(kRows * kStride);
  for (size_t i = 0; i < index.size(); ++i)
    index[i] = static_cast<int64_t>(i * i * 5 + i / 7) % 97;
  std::vector<int64_t> places(kRows * (kHi - kLo), -1), want = places;
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t j = 0; j < kEach; ++j) {
      const int64_t id = index[static_cast<size_t>(r * kStride + j)];
      if (id >= kLo && id < kHi)
        want[static_cast<size_t>(r * (kHi - kLo) + id - kLo)] = 30 + j;
    }
  run(LastPlaces{.rows = kRows,
                 .k = kEach,
                 .index = index.data(),
                 .stride = kStride,
                 .first = 30,
                 .lo = kLo,
                 .hi = kHi,
                 .places = places.data()});
  EXPECT_EQ(places, want);
}

TEST(LastPlaces, TheLastOfEqualIndicesWins) {
  // Rows of 3, with a stride of 4.
  const std::vector<int64_t> index{2, 2, 0, 9, 1, 9, 1, 9};
  std::vector<int64_t> places(6, -1);
  LastPlaces last{.rows = 2,
                  .k = 3,
                  .index = index.data(),
                  .stride = 4,
                  .first = 10,
                  .hi = 3,
                  .places = places.data()};
  run(last);
  EXPECT_EQ(places, (std::vector<int64_t>{12, -1, 11, -1, 12, -1}));
  std::vector<int64_t> few(4, -1);
  last.lo = 1;
  last.places = few.data();
  run(last);
  EXPECT_EQ(few, (std::vector<int64_t>{-1, 11, 12, -1}));
}

TEST(CountBefore, AgainstALoop) {
  constexpr int64_t kRows = 3, kEach = 40, kStride = 23;
  for (DType t : kOrdered)
    for (int64_t n : {0, 1, 8, 20})
      for (bool equal : {false, true}) {
        Elements x(t, kRows * kStride, 9),
            values = Elements::random(t, kRows * kEach, -4, 4);
        for (int64_t i = 0; i < values.size(); ++i)
          values.set(i, std::floor(values[i]));
        for (int64_t r = 0; r < kRows; ++r)
          for (int64_t i = 0; i < n; ++i)
            x.set(r * kStride + i, static_cast<double>((i + r) / 3 - 3));
        if (is_float(t)) {
          values.set(5, kNaN);
          if (n > 0) x.set(n - 1, kNaN);
        }
        std::vector<int64_t> got(kRows * kEach, -1), want;
        run(CountBefore{.x = matrix(x, kRows, n, kStride),
                        .k = kEach,
                        .values = values.data(),
                        .equal = equal,
                        .out = got.data()});
        for (int64_t i = 0; i < kRows * kEach; ++i) {
          int64_t count = 0;
          for (int64_t j = 0; j < n; ++j) {
            const double e = x[i / kEach * kStride + j], v = values[i];
            count += std::isnan(v) || (equal ? e <= v : e < v);
          }
          want.push_back(count);
        }
        EXPECT_EQ(got, want) << name(t) << " " << n << " " << equal;
      }
}

}  // namespace
}  // namespace dtensor::kernels
