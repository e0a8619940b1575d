// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "dtensor/placement/error.h"
#include "tests/ops/kernels/testing.h"
#include "tests/ops/reference.h"

namespace dtensor::kernels {
namespace {

constexpr ReduceKind kKinds[] = {ReduceKind::kSum, ReduceKind::kMax,
                                 ReduceKind::kMin, ReduceKind::kProd};

void reduce(ReduceKind kind, DType t, const Shape& shape, const void* in,
            const Shape& strides, uint32_t dims, void* out) {
  run(Reduce{.kind = kind,
             .type = t,
             .shape = shape,
             .in = in,
             .strides = strides,
             .dims = dims,
             .out = out});
}

int64_t kept_size(const Shape& shape, uint32_t dims) {
  int64_t n = 1;
  for (int i = 0; i < shape.size(); ++i)
    if (!(dims >> i & 1)) n *= shape[i];
  return n;
}

TEST(ReduceTest, EverySetOfDimensionsInEveryLayout) {
  std::vector<Layout> all = layouts();
  all.push_back({{300, 7}, {7, 1}});
  all.push_back({{7, 5000}, {5000, 1}});
  all.push_back({{3, 70, 11, 2}, {1540, 22, 2, 1}});
  all.push_back({{2, 3, 600}, {1, 1200, 2}});
  // Kept dimensions between reduced ones, and the other way round.
  all.push_back({{4, 3, 200}, {600, 200, 1}});
  all.push_back({{3, 200, 5}, {1000, 5, 1}});
  for (DType t : kAll)
    for (ReduceKind kind : kKinds) {
      if (t == DType::kBool && kind == ReduceKind::kSum) continue;
      const bool product = kind == ReduceKind::kProd;
      for (const Layout& l : all)
        for (uint32_t dims = 0; dims < 1u << l.shape.size(); ++dims) {
          // Products near 1, so that they neither vanish nor overflow.
          const Elements x = Elements::random(t, span_of(l.shape, l.strides),
                                              !product       ? -2
                                              : !is_float(t) ? 0
                                                             : 0.9995,
                                              !product       ? 2
                                              : !is_float(t) ? 3
                                                             : 1.0005);
          const Elements x64(DType::kF64, x.doubles());
          const int64_t n = kept_size(l.shape, dims);
          Elements y(t, n, 5), want(DType::kF64, n);
          reference::reduce(kind, l.shape,
                            static_cast<const double*>(x64.data()), l.strides,
                            dims, static_cast<double*>(want.data()));
          // An empty reduction of integers gives their lowest or highest value,
          // not infinity.
          if (!is_float(t) && n > 0 && numel(l.shape) == 0) continue;
          reduce(kind, t, l.shape, x.data(), l.strides, dims, y.data());
          ASSERT_TRUE(
              near(y, want.doubles(), (product ? 20 : 5) * tolerance(t)))
              << to_string(l.shape) << to_string(l.strides) << " dims " << dims
              << " kind " << static_cast<int>(kind);
        }
    }
}

TEST(ReduceTest, EmptyReductionsGiveTheIdentity) {
  auto of = [](DType t, ReduceKind kind) {
    Elements y(t, 2, 7);
    reduce(kind, t, {2, 0}, nullptr, {1, 1}, 2, y.data());
    EXPECT_EQ(y[0], y[1]);
    return y[0];
  };
  for (DType t : kFloats) {
    EXPECT_EQ(of(t, ReduceKind::kSum), 0);
    EXPECT_EQ(of(t, ReduceKind::kMax), -INFINITY);
    EXPECT_EQ(of(t, ReduceKind::kMin), INFINITY);
    EXPECT_EQ(of(t, ReduceKind::kProd), 1);
  }
  EXPECT_EQ(of(DType::kI32, ReduceKind::kMax), -2147483648.0);
  EXPECT_EQ(of(DType::kI32, ReduceKind::kMin), 2147483647.0);
  EXPECT_EQ(of(DType::kI64, ReduceKind::kMax), -0x1p63);
  EXPECT_EQ(of(DType::kI64, ReduceKind::kProd), 1);
  EXPECT_EQ(of(DType::kBool, ReduceKind::kMax), 0);
  EXPECT_EQ(of(DType::kBool, ReduceKind::kMin), 1);
  EXPECT_THROW(of(DType::kBool, ReduceKind::kSum), Error);
}

TEST(ReduceTest, NaNWins) {
  for (DType t : kFloats)
    for (ReduceKind kind : kKinds)
      for (int64_t at : {0, 1, 40, 99}) {
        Elements x = Elements::random(t, 200);
        x.set(at, NAN);
        Elements row(t, 2), column(t, 100);
        reduce(kind, t, {2, 100}, x.data(), {100, 1}, 2, row.data());
        EXPECT_TRUE(std::isnan(row[0])) << at;
        EXPECT_FALSE(std::isnan(row[1])) << at;
        reduce(kind, t, {2, 100}, x.data(), {100, 1}, 1, column.data());
        EXPECT_TRUE(std::isnan(column[at])) << at;
        EXPECT_FALSE(std::isnan(column[(at + 1) % 100])) << at;
      }
}

TEST(ReduceTest, LongSumsAreAccurate) {
  const int64_t n = 1 << 20;
  const Elements x = Elements::random(DType::kF32, n, 0, 1);
  const std::vector<double> d = x.doubles();
  const double want = std::accumulate(d.begin(), d.end(), 0.0);
  Elements y(DType::kF32, 1), column(DType::kF32, 2);
  reduce(ReduceKind::kSum, DType::kF32, {n}, x.data(), {1}, 1, y.data());
  EXPECT_NEAR(y[0] / want, 1, 2e-7);
  reduce(ReduceKind::kSum, DType::kF32, {n / 2, 2}, x.data(), {2, 1}, 1,
         column.data());
  EXPECT_NEAR((column[0] + column[1]) / want, 1, 4e-7);
  for (const auto& [t, each, error] :
       {std::tuple{DType::kBF16, 1.0, 400.0}, {DType::kF16, 0.5, 16.0}}) {
    const Elements values(t, 100000, each);
    Elements half(t, 1);
    reduce(ReduceKind::kSum, t, {100000}, values.data(), {1}, 1, half.data());
    EXPECT_NEAR(half[0], 100000 * each, error);
  }
}

// Rows so long that they are reduced in pieces, of which the last is shorter.
TEST(ReduceTest, LongRowsAreWhole) {
  const int64_t n = 40007;
  for (DType t : {DType::kF64, DType::kBF16, DType::kI32})
    for (int64_t step : {1, 2}) {
      Elements x(t, 3 * n * step, 7);
      for (int64_t i = 0; i < 3 * n; ++i) x.set(i * step, 0);
      for (int64_t r = 0; r < 3; ++r)
        for (int64_t at : {int64_t{0}, int64_t{4096}, n / 2, n - 1})
          x.set((r * n + at) * step, static_cast<double>(r + 1));
      Elements sum(t, 3), max(t, 3);
      reduce(ReduceKind::kSum, t, {3, n}, x.data(), {n * step, step}, 2,
             sum.data());
      x.set((2 * n - 1) * step, 9);
      reduce(ReduceKind::kMax, t, {3, n}, x.data(), {n * step, step}, 2,
             max.data());
      EXPECT_TRUE(near(sum, {4, 8, 12}, 0));
      EXPECT_TRUE(near(max, {1, 9, 3}, 0));
    }
}

TEST(ReduceTest, IntegerSumsWrapAround) {
  const std::vector<int32_t> x = {2147483647, 1};
  std::vector<int32_t> y(1);
  reduce(ReduceKind::kSum, DType::kI32, {2}, x.data(), {1}, 1, y.data());
  EXPECT_EQ(y[0], std::numeric_limits<int32_t>::min());
}

TEST(SumSquaresTest, EveryFloat) {
  for (DType t : kFloats)
    for (int64_t n : {0, 1, 17, 5003, 100003}) {
      const Elements x = Elements::random(t, n);
      double want = 0;
      for (int64_t i = 0; i < n; ++i) want += x[i] * x[i];
      std::vector<double> sum = {1};
      run(SumSquares{.type = t, .n = n, .x = x.data(), .sum = sum.data()});
      EXPECT_NEAR(sum[0] - 1, want, 2e-7 * (want + 1));
    }
}

// The naive reference sums from the beginning for each element.
double naive_scan(const Elements& x, int64_t row, int64_t stride, int64_t n,
                  int64_t at, bool reverse, double carry) {
  double sum = carry;
  for (int64_t i = 0; i < n; ++i)
    if (reverse ? i >= at : i <= at) sum += x[row * stride + i];
  return sum;
}

TEST(ScanRowsTest, AgainstTheNaiveOne) {
  for (DType t :
       {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI64})
    for (int64_t n : {0, 1, 2, 37})
      for (bool reverse : {false, true})
        for (bool carried : {false, true}) {
          constexpr int64_t kRows = 3;
          const int64_t stride = n + 2;
          const Elements x = Elements::random(t, kRows * stride, -3, 3);
          const DType wide = scan_type_of(t);
          const Elements carry = Elements::random(wide, kRows, -3, 3);
          Elements y(t, kRows * n, 9), total(wide, kRows, 9);
          run(ScanRows{.x = matrix(x, kRows, n, stride),
                       .reverse = reverse,
                       .carry = carried ? carry.data() : nullptr,
                       .out = y.data(),
                       .total = total.data()});
          for (int64_t r = 0; r < kRows; ++r) {
            const double from = carried ? carry[r] : 0;
            for (int64_t i = 0; i < n; ++i)
              ASSERT_NEAR(y[r * n + i],
                          naive_scan(x, r, stride, n, i, reverse, from),
                          20 * tolerance(t))
                  << name(t) << " " << n << " " << reverse << carried;
            ASSERT_NEAR(total[r], naive_scan(x, r, stride, n, n, false, from),
                        1e-9);
          }
        }
}

// Rows so long that they are summed in segments, and these in segments again.
TEST(ScanRowsTest, LongRows) {
  constexpr int64_t kRows = 2;
  for (DType t : {DType::kF32, DType::kI32})
    for (int64_t n : {511, 1024, 1025, 5000, 1100000})
      for (bool reverse : {false, true}) {
        if (n > 5000 && (reverse || t != DType::kI32)) continue;  // slow
        const Elements x = Elements::random(t, kRows * n, -3, 3);
        const DType wide = scan_type_of(t);
        const Elements carry = Elements::random(wide, kRows, -3, 3);
        Elements y(t, kRows * n, 9), total(wide, kRows, 9),
            alone(wide, kRows, 9);
        ScanRows scan{.x = matrix(x, kRows, n, n),
                      .reverse = reverse,
                      .carry = carry.data(),
                      .out = y.data(),
                      .total = total.data()};
        run(scan);
        scan.out = nullptr, scan.total = alone.data();
        run(scan);
        for (int64_t r = 0; r < kRows; ++r) {
          double sum = carry[r];
          for (int64_t i = 0; i < n; ++i) {
            const int64_t at = r * n + (reverse ? n - 1 - i : i);
            sum += x[at];
            ASSERT_NEAR(y[at], sum, tolerance(t) * std::fmax(1, std::fabs(sum)))
                << name(t) << " " << n << " " << reverse << " " << at;
          }
          EXPECT_NEAR(total[r], sum, 1e-6);
          EXPECT_NEAR(alone[r], sum, 1e-6);
        }
      }
}

// Running maxima, minima and products, of one segment and of several.
TEST(ScanRowsTest, OtherKinds) {
  constexpr int64_t kRows = 2;
  const auto combined = [](ReduceKind kind, double a, double b) {
    if (std::isnan(a) || std::isnan(b)) return std::nan("");
    return kind == ReduceKind::kMax   ? std::fmax(a, b)
           : kind == ReduceKind::kMin ? std::fmin(a, b)
                                      : a * b;
  };
  for (ReduceKind kind :
       {ReduceKind::kMax, ReduceKind::kMin, ReduceKind::kProd})
    for (DType t : {DType::kF32, DType::kF64, DType::kI32, DType::kI64})
      for (int64_t n : {0, 1, 9, 70, 3000})
        for (bool reverse : {false, true}) {
          const bool products = kind == ReduceKind::kProd;
          // Products of 1 and -1 neither vanish nor overflow.
          Elements x = Elements::random(t, kRows * n, -90, 90);
          if (products)
            for (int64_t i = 0; i < x.size(); ++i) x.set(i, x[i] < 0 ? -1 : 1);
          if (is_float(t) && n == 70) x.set(n + 40, std::nan(""));
          const DType wide = scan_type_of(t);
          const Elements carry(wide, {-3, 5});
          Elements y(t, kRows * n, 9), total(wide, kRows, 9);
          run(ScanRows{.kind = kind,
                       .x = matrix(x, kRows, n),
                       .reverse = reverse,
                       .carry = carry.data(),
                       .out = y.data(),
                       .total = total.data()});
          for (int64_t r = 0; r < kRows; ++r) {
            double want = carry[r];
            for (int64_t i = 0; i < n; ++i) {
              const int64_t at = r * n + (reverse ? n - 1 - i : i);
              want = combined(kind, want, x[at]);
              ASSERT_TRUE(y[at] == want || (std::isnan(want) && y[at] != y[at]))
                  << name(t) << " " << n << " " << reverse << " " << at;
            }
            ASSERT_TRUE(total[r] == want || std::isnan(want));
          }
        }
}

// The rows of a ScanExp, of n elements each.
struct Exponentials {
  Exponentials(DType t, int64_t length)
      : n(length),
        x(Elements::random(t, kRows * (n + 2), -9, 9, 1)),
        weight(Elements::random(t, kRows * (n + 1), -3, 3, 2)),
        scale(Elements::random(t, kRows * n, -9, 0, 3)) {}
  // The sum of weight * exp(x - least) over the elements up to `at`, and that
  // of the absolute values.
  std::pair<double, double> sum(int64_t r, int64_t at, bool weighted,
                                bool reverse, double least) const {
    const auto term = [&](double w, double e) {
      return w * std::exp(e - least);
    };
    double sum = term(kCarry[2 * r + 1], kCarry[2 * r]), all = std::fabs(sum);
    for (int64_t i = 0; i < n; ++i)
      if (reverse ? i >= at : i <= at) {
        const double one =
            term(weighted ? weight[r * (n + 1) + i] : 1, x[r * (n + 2) + i]);
        sum += one, all += std::fabs(one);
      }
    return {sum, all};
  }

  static constexpr int64_t kRows = 2;
  static constexpr double kCarry[] = {-4, 3, 5, 0.5};
  int64_t n;
  Elements x, weight, scale;
};

TEST(ScanExpTest, AgainstTheNaiveOne) {
  constexpr int64_t kRows = Exponentials::kRows;
  const Elements carry(DType::kF64, {-4, 3, 5, 0.5});
  for (DType t : kFloats)
    for (int64_t n : {0, 1, 9, 70, 1500})
      for (bool reverse : {false, true})
        for (bool log : {false, true}) {
          if (n > 70 && is_half_float(t)) continue;  // slow
          const Exponentials e(t, n);
          Elements y(t, kRows * n, 9), total(DType::kF64, 2 * kRows, 9);
          ScanExp scan{.x = matrix(e.x, kRows, n, n + 2),
                       .reverse = reverse,
                       .carry = carry.data(),
                       .out = y.data(),
                       .total = total.data()};
          if (!log) {
            scan.weight = matrix(e.weight, kRows, n, n + 1);
            scan.scale = matrix(e.scale, kRows, n);
          }
          run(scan);
          for (int64_t r = 0; r < kRows; ++r) {
            for (int64_t i = 0; i < n; ++i) {
              const auto [sum, all] = e.sum(r, i, !log, reverse, 0);
              const double by = std::exp(e.scale[r * n + i]);
              const double want = log ? std::log(sum) : sum * by;
              ASSERT_NEAR(y[r * n + i], want,
                          tolerance(t) * std::fmax(1, log ? want : all * by))
                  << name(t) << " " << n << " " << reverse << log << " " << i;
            }
            const auto [sum, all] =
                e.sum(r, reverse ? 0 : n - 1, !log, reverse, 9);
            EXPECT_NEAR(total[2 * r + 1] * std::exp(total[2 * r] - 9), sum,
                        1e-12 * all)
                << name(t) << " " << n << " " << reverse << log;
          }
        }
}

// One segment of a row after another, where exponentials would overflow.
TEST(ScanExpTest, LongRowsOfLargeNumbers) {
  for (const int64_t n : {1024, 5000})
    for (bool reverse : {false, true}) {
      Elements x(DType::kF64, n), y(DType::kF64, n);
      // Element i, counted in the direction of the scan, is 2000 + i / 8.
      const auto place = [&](int64_t i) { return reverse ? n - 1 - i : i; };
      for (int64_t i = 0; i < n; ++i)
        x.set(place(i), 2000 + static_cast<double>(i) / 8);
      run(ScanExp{.x = matrix(x, 1, n), .reverse = reverse, .out = y.data()});
      for (int64_t i = 0; i < n; ++i) {
        // The logarithm of a geometric series.
        const double d = static_cast<double>(i + 1) / 8;
        const double want = 2000 + static_cast<double>(i) / 8 +
                            std::log(-std::expm1(-d) / -std::expm1(-0.125));
        ASSERT_NEAR(y[place(i)], want, 1e-10) << n << " " << reverse << i;
      }
    }
}

TEST(ScanExpTest, InfinitiesAndNaN) {
  constexpr double kInf = INFINITY;
  for (DType t : kFloats) {
    const Elements x(t, {-kInf, -kInf, 1, -kInf, kInf, 2, kInf, NAN, 3});
    Elements y(t, 9);
    run(ScanExp{.x = matrix(x, 1, 9), .out = y.data()});
    EXPECT_TRUE(near(y, {-kInf, -kInf, 1, 1, kInf, kInf, kInf, NAN, NAN}));
    // The gradient at the -infs before a number.
    const Elements dy(t, {3, 5, 7}), less(t, {kInf, kInf, -1});
    Elements dx(t, 3);
    run(ScanExp{.x = matrix(less, 1, 3),
                .weight = matrix(dy, 1, 3),
                .scale = matrix(x, 1, 3, 9),
                .reverse = true,
                .out = dx.data()});
    EXPECT_TRUE(near(dx, {0, 0, 7}));
  }
}

}  // namespace
}  // namespace dtensor::kernels
