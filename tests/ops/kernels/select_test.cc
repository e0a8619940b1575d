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

// Two rows of x have one row of the index, and nobody asks for the ends.
TEST(TakeRows, RowsThatShareAnIndex) {
  for (DType t : kAll) {
    const Elements x(t, {1, 0, 0, 1, 1, 1, 0, 0});  // rows of 2
    const std::vector<int64_t> index{1, -1, 0, 2, 1, 1};
    Elements out(t, 12, 1);
    TakeRows take{.x = matrix(x, 4, 2, 2),
                  .k = 3,
                  .share = 2,
                  .index = index.data(),
                  .hi = 2,
                  .out = out.data()};
    const std::vector<double> want{0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0};
    run(take);
    EXPECT_EQ(out.doubles(), want) << name(t);
    std::vector<int64_t> ends(2, 5);
    take.ends = ends.data();
    run(take);
    EXPECT_EQ(out.doubles(), want) << name(t);
    EXPECT_EQ(ends, (std::vector<int64_t>{2, ~-1}));
  }
}

// Rows that share their indices, in numbers that fill registers and do not; few
// and many indices for the elements of a row.
TEST(TakeRows, SumsWithWeights) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (DType t : kFloats)
    for (const int64_t share : {1, 3, 4, 21})
      for (const int64_t k : {2, 40}) {
        const int64_t sets = 2, taps = 3, n = 7, lo = 4, rows = sets * share;
        Elements x = Elements::random(t, rows * (n + 1), -2, 2, 1);
        for (int64_t r = 0; r < rows; ++r) x.set(r * (n + 1), kInf);
        const Elements w = Elements::random(t, taps * sets * k, -2, 2, 2);
        std::vector<int64_t> index;  // never the infinite element, 4
        for (int64_t i = 0; i < taps * sets * k; ++i)
          index.push_back(i * 5 % 13 == 4 ? -1 : i * 5 % 13);
        std::vector<double> want;
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t j = 0; j < k; ++j) {
            want.push_back(0);
            for (int64_t tap = 0; tap < taps; ++tap) {
              const int64_t i = (tap * sets + r / share) * k + j,
                            at = index[static_cast<size_t>(i)] - lo;
              if (at >= 0 && at < n) want.back() += w[i] * x[r * (n + 1) + at];
            }
          }
        Elements out(t, rows * k, 9);
        run(TakeRows{.x = matrix(x, rows, n, n + 1),
                     .k = k,
                     .share = share,
                     .taps = taps,
                     .weights = w.data(),
                     .index = index.data(),
                     .lo = lo,
                     .hi = lo + n,
                     .out = out.data()});
        EXPECT_TRUE(near(out, want)) << name(t) << " " << share << " " << k;
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

// Rows in several parts, one of them empty and one with ids of its own. In the
// test, a rank's counts are added up as its caller does.
TEST(SelectRound, AgainstAFullSort) {
  constexpr int64_t kRows = 3, kStride = 700;
  for (DType t : kOrdered)
    for (DType count_type : {DType::kI32, DType::kI64})
      for (int64_t n : {1, 2, 300, 690}) {
        // Many ties, zeros of both signs, infinities and NaNs.
        Elements x = Elements::random(t, kRows * kStride, -40, 40);
        for (int64_t i = 0; i < x.size(); ++i) x.set(i, std::floor(x[i]) / 4);
        if (is_float(t))
          for (int64_t i = 0; i < n; i += 9) {
            x.set(i, kNaN);
            x.set(kStride + i, i % 2 ? -0.0 : 0.0);
            x.set(2 * kStride + i, i % 2 ? -HUGE_VAL : HUGE_VAL);
          }
        const std::vector<int64_t> wanted{0, n / 3, n / 2, n / 2, n - 1, n, -1};
        const auto k = std::ssize(wanted);
        std::vector<int64_t> ranks, keys(kRows * wanted.size()),
            found(keys.size());
        for (int64_t r = 0; r < kRows; ++r)
          ranks.insert(ranks.end(), wanted.begin(), wanted.end());
        // [0, b), none, and the columns [b, n) in reverse.
        const int64_t b = n / 4;
        Elements reversed(t, kRows * n);
        std::vector<int64_t> ids;
        for (int64_t i = n - 1; i >= b; --i) {
          for (int64_t r = 0; r < kRows; ++r)
            reversed.set(r * n + std::ssize(ids), x[r * kStride + i]);
          ids.push_back(i);
        }
        const int64_t numbers = kRows * k * SelectRound::kDigits;
        Elements counts(count_type, numbers), part(count_type, numbers);
        SelectRound round{.x = {},
                          .size = n,
                          .k = k,
                          .ranks = ranks.data(),
                          .keys = keys.data(),
                          .found = found.data(),
                          .count_type = count_type};
        for (; round.round <= select_rounds(t, n); ++round.round) {
          const std::vector<int64_t> before[] = {ranks, keys, found};
          Elements sum(count_type, numbers);
          for (int p = 0; p < 3; ++p) {
            // Each part makes the same choice from the same counts.
            ranks = before[0], keys = before[1], found = before[2];
            round.x = p == 0   ? matrix(x, kRows, b, kStride)
                      : p == 1 ? matrix(x, kRows, 0, kStride)
                               : matrix(reversed, kRows, n - b, n);
            round.ids = p == 2 ? ids.data() : nullptr;
            part = counts;
            round.counts = part.data();
            run(round);
            for (int64_t i = 0; i < numbers; ++i) sum.set(i, sum[i] + part[i]);
          }
          counts = sum;
        }
        for (int64_t r = 0; r < kRows; ++r) {
          std::vector<double> row;
          for (int64_t i = 0; i < n; ++i) row.push_back(x[r * kStride + i]);
          const std::vector<int64_t> order = sorted(row, false);
          for (int64_t j = 0; j < k; ++j) {
            const int64_t rank = wanted[static_cast<size_t>(j)];
            const bool exists = rank >= 0 && rank < n;
            ASSERT_EQ(found[static_cast<size_t>(r * k + j)],
                      exists ? order[static_cast<size_t>(rank)] : rank)
                << name(t) << " " << n << " row " << r << " rank " << rank;
          }
        }
      }
}

// More elements than a block of a GPU counts.
TEST(SelectRound, LongRow) {
  constexpr int64_t kSize = 150'000;
  Elements x(DType::kI32, kSize);
  for (int64_t i = 0; i < kSize; ++i)
    x.set(i, static_cast<double>(i * 7919 % kSize));
  std::vector<int64_t> ranks{0, 77'777, kSize - 1}, keys(3), found(3);
  std::vector<int64_t> counts(3 * SelectRound::kDigits);
  SelectRound round{.x = matrix(x, 1, kSize),
                    .size = kSize,
                    .k = 3,
                    .ranks = ranks.data(),
                    .keys = keys.data(),
                    .found = found.data(),
                    .counts = counts.data()};
  for (; round.round <= select_rounds(DType::kI32, kSize); ++round.round)
    run(round);
  EXPECT_EQ(x[found[0]], 0);
  EXPECT_EQ(x[found[1]], 77'777);
  EXPECT_EQ(x[found[2]], kSize - 1);
}

}  // namespace
}  // namespace dtensor::kernels
