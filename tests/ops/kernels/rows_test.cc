// SPDX-License-Identifier: Apache-2.0
// Softmax, norms, embedding, cross entropy: kernels on rows.
#include "dtensor/ops/kernels/rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <random>
#include <vector>

#include "dtensor/ops/kernels/cross_entropy.h"
#include "dtensor/ops/kernels/embedding.h"
#include "dtensor/ops/kernels/norm.h"
#include "dtensor/ops/kernels/operands.h"
#include "dtensor/placement/error.h"
#include "tests/ops/kernels/testing.h"
#include "tests/ops/reference.h"

namespace dtensor::kernels {
namespace {

constexpr int64_t kLengths[] = {1, 2, 15, 16, 33, 127, 1000, 9001};
constexpr int64_t kRows = 5;

std::vector<double> zeros(int64_t n) {
  return std::vector<double>(static_cast<size_t>(n));
}

// The rows of a matrix with a row stride, without the elements between rows.
std::vector<double> dense(const Elements& x, int64_t rows, int64_t n,
                          int64_t stride) {
  return gathered(x, {rows, n}, {stride, 1});
}

TEST(CrossEntropyTest, EndsOfTheTargetsThatCount) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::min();
  const auto ends = [](DType t, const std::vector<double>& targets) {
    const Elements x(t, targets);
    std::vector<int64_t> r(2, 5);
    run(CeRange{.target_type = t,
                .n = x.size(),
                .targets = x.data(),
                .ignored = -100,
                .ignores = 1,
                .ends = r.data()});
    return r;
  };
  for (DType t : {DType::kI32, DType::kI64}) {
    EXPECT_EQ(ends(t, {3, -100, 0, 9, 4}), (std::vector<int64_t>{9, ~0}));
    EXPECT_EQ(ends(t, {7}), (std::vector<int64_t>{7, ~7}));
    EXPECT_EQ(ends(t, {-5, 2, -101}), (std::vector<int64_t>{2, ~-101}));
    EXPECT_EQ(ends(t, {-100, -100}), (std::vector<int64_t>{kNone, kNone}));
    EXPECT_EQ(ends(t, {}), (std::vector<int64_t>{kNone, kNone}));
  }
  std::vector<double> many(5000, 1);
  many[4321] = 77, many[1234] = -3;
  EXPECT_EQ(ends(DType::kI64, many), (std::vector<int64_t>{77, ~-3}));
}

TEST(SoftmaxTest, ForwardAndBackward) {
  for (DType t : kFloats)
    for (int64_t n : kLengths)
      for (int64_t pad : {0, 3}) {
        SCOPED_TRACE(std::string(name(t)) + " " + std::to_string(n));
        const int64_t stride = n + pad, size = kRows * n;
        const Elements x = Elements::random(t, kRows * stride, -6, 6);
        const Elements dy = Elements::random(t, kRows * stride, -1, 1, 7);
        const auto x64 = dense(x, kRows, n, stride);
        const auto dy64 = dense(dy, kRows, n, stride);
        auto y64 = zeros(size), dx64 = zeros(size);
        Elements y(t, size), dx(t, size);

        run(Softmax{.x = matrix(x, kRows, n, stride), .y = y.data()});
        reference::softmax(kRows, n, x64.data(), y64.data());
        EXPECT_TRUE(near(y, y64));
        run(SoftmaxBackward{.dy = matrix(dy, kRows, n, stride),
                            .y = y.data(),
                            .dx = dx.data()});
        reference::softmax_backward(kRows, n, y.doubles().data(), dy64.data(),
                                    dx64.data());
        EXPECT_TRUE(near(dx, dx64));

        run(Softmax{
            .x = matrix(x, kRows, n, stride), .y = y.data(), .log = true});
        reference::log_softmax(kRows, n, x64.data(), y64.data());
        EXPECT_TRUE(near(y, y64));
        run(SoftmaxBackward{.dy = matrix(dy, kRows, n, stride),
                            .y = y.data(),
                            .dx = dx.data(),
                            .log = true});
        reference::log_softmax_backward(kRows, n, y.doubles().data(),
                                        dy64.data(), dx64.data());
        EXPECT_TRUE(near(dx, dx64, 4 * tolerance(t)));
      }
}

// The rows are the columns of two matrices [n, inner], so they lie side by
// side.
TEST(SoftmaxTest, RowsSideBySide) {
  for (DType t : kFloats)
    for (int64_t inner : {3, 16, 37})
      for (int64_t n : {0, 1, 7, 100}) {
        SCOPED_TRACE(std::string(name(t)) + " " + std::to_string(inner) + " " +
                     std::to_string(n));
        const int64_t stride = n * inner + 5, rows = 2 * inner, size = rows * n;
        const DType st = stat_of(t);
        const Elements x = Elements::random(t, 2 * stride, -6, 6),
                       dy = Elements::random(t, 2 * stride, -1, 1, 7);
        const auto beside = [&](const Elements& e, int64_t step) {
          return Matrix{t, rows, n, e.data(), step, inner};
        };
        const auto lined = [&](const Elements& e, int64_t step) {
          return gathered(e, {2, inner, n}, {step, 1, inner});
        };
        const Elements x_rows(t, lined(x, stride)),
            dy_rows(t, lined(dy, stride));
        const auto same = [&](const Elements& got, const Elements& want) {
          return near(Elements(t, lined(got, n * inner)), want.doubles(),
                      4 * tolerance(t));
        };
        Elements max(st, rows), sum(st, rows), dot(st, rows),
            max_rows(st, rows), sum_rows(st, rows), dot_rows(st, rows);
        for (bool log : {false, true}) {
          Elements y(t, size), dx(t, size), y_rows(t, size), dx_rows(t, size);
          run(Softmax{.x = beside(x, stride), .y = y.data(), .log = log});
          run(Softmax{
              .x = matrix(x_rows, rows, n), .y = y_rows.data(), .log = log});
          EXPECT_TRUE(same(y, y_rows));
          SoftmaxBackward back{.dy = beside(dy, stride),
                               .y = y.data(),
                               .dx = dx.data(),
                               .log = log};
          run(back);
          run(SoftmaxBackward{.dy = matrix(dy_rows, rows, n),
                              .y = y_rows.data(),
                              .dx = dx_rows.data(),
                              .log = log});
          EXPECT_TRUE(same(dx, dx_rows));

          // In two steps.
          run(RowMaxSum{beside(x, stride), max.data(), sum.data()});
          run(RowMaxSum{matrix(x_rows, rows, n), max_rows.data(),
                        sum_rows.data()});
          EXPECT_TRUE(near(max, max_rows.doubles()));
          EXPECT_TRUE(near(sum, sum_rows.doubles(), 3e-6));
          run(Softmax{.x = beside(x, stride),
                      .max = max.data(),
                      .sum = sum.data(),
                      .y = y.data(),
                      .log = log});
          EXPECT_TRUE(same(y, y_rows));
          run(RowDot{beside(y, n * inner), beside(dy, stride), dot.data()});
          run(RowDot{matrix(y_rows, rows, n), matrix(dy_rows, rows, n),
                     dot_rows.data()});
          EXPECT_TRUE(near(dot, dot_rows.doubles(), 10 * tolerance(t)));
          run(RowSum{beside(dy, stride), sum.data()});
          run(RowSum{matrix(dy_rows, rows, n), sum_rows.data()});
          EXPECT_TRUE(near(sum, sum_rows.doubles(), 3e-6));
          back.sum = log ? sum.data() : dot.data();
          run(back);
          EXPECT_TRUE(same(dx, dx_rows));
        }
      }
  const Elements low(DType::kF32, 64, -INFINITY);
  Elements max(DType::kF32, 32), sum(DType::kF32, 32), y(DType::kF32, 64);
  const Matrix m{DType::kF32, 32, 2, low.data(), 64, 32};
  run(RowMaxSum{m, max.data(), sum.data()});
  EXPECT_EQ(max.doubles(), std::vector<double>(32, -INFINITY));
  EXPECT_EQ(sum.doubles(), std::vector<double>(32, 2));
  run(Softmax{.x = m, .y = y.data()});
  EXPECT_TRUE(near(y, std::vector<double>(64, NAN)));
}

// Rows cut into parts, one of them empty, as ranks hold them.
TEST(SoftmaxTest, PiecesOfSplitRowsGiveTheWhole) {
  for (DType t : kFloats) {
    const DType st = stat_of(t);
    const int64_t n = 100, cuts[] = {0, 37, 37, 100};
    const Elements x = Elements::random(t, kRows * n, -6, 6);
    Elements dy = Elements::random(t, kRows * n, -1, 1, 7);
    auto part = [&](const Elements& a, int p) {
      Elements r(t, kRows * (cuts[p + 1] - cuts[p]));
      for (int64_t i = 0, k = 0; i < kRows; ++i)
        for (int64_t j = cuts[p]; j < cuts[p + 1]; ++j)
          r.set(k++, a[i * n + j]);
      return r;
    };
    Elements max(st, kRows, -INFINITY), sum(st, kRows), dot(st, kRows),
        sum_dy(st, kRows);
    std::vector<Elements> max_of, sum_of;
    for (int p = 0; p < 3; ++p) {
      const int64_t w = cuts[p + 1] - cuts[p];
      Elements m(st, kRows, 9), e(st, kRows, 9);
      const Elements xp = part(x, p);
      run(RowMaxSum{matrix(xp, kRows, w), m.data(), e.data()});
      for (int64_t i = 0; i < kRows; ++i) max.set(i, std::fmax(max[i], m[i]));
      if (w == 0) {
        EXPECT_EQ(m[0], -INFINITY);
        EXPECT_EQ(e[0], 0);
      }
      max_of.push_back(m), sum_of.push_back(e);
    }
    for (size_t p = 0; p < 3; ++p)
      for (int64_t i = 0; i < kRows; ++i)
        sum.set(i, sum[i] + sum_of[p][i] * std::exp(max_of[p][i] - max[i]));
    auto want = zeros(kRows * n), log_want = want, want_dx = want,
         log_want_dx = want;
    reference::softmax(kRows, n, x.doubles().data(), want.data());
    reference::log_softmax(kRows, n, x.doubles().data(), log_want.data());
    reference::softmax_backward(kRows, n, want.data(), dy.doubles().data(),
                                want_dx.data());
    reference::log_softmax_backward(kRows, n, log_want.data(),
                                    dy.doubles().data(), log_want_dx.data());
    const Elements y(t, want), log_y(t, log_want);
    for (int p = 0; p < 3; ++p) {
      const int64_t w = cuts[p + 1] - cuts[p];
      Elements d(st, kRows, 9), s(st, kRows, 9);
      const Elements yp = part(y, p), dp = part(dy, p);
      run(RowDot{matrix(yp, kRows, w), matrix(dp, kRows, w), d.data()});
      run(RowSum{matrix(dp, kRows, w), s.data()});
      for (int64_t i = 0; i < kRows; ++i) {
        dot.set(i, dot[i] + d[i]);
        sum_dy.set(i, sum_dy[i] + s[i]);
      }
    }
    for (int p = 0; p < 3; ++p) {
      const int64_t w = cuts[p + 1] - cuts[p];
      auto expect = [&](const Elements& got, const std::vector<double>& whole) {
        EXPECT_TRUE(
            near(got, part(Elements(t, whole), p).doubles(), 4 * tolerance(t)))
            << p;
      };
      const Elements xp = part(x, p), yp = part(y, p), lp = part(log_y, p),
                     dp = part(dy, p);
      Elements r(t, kRows * w);
      for (bool log : {false, true}) {
        run(Softmax{.x = matrix(xp, kRows, w),
                    .max = max.data(),
                    .sum = sum.data(),
                    .y = r.data(),
                    .log = log});
        expect(r, log ? log_want : want);
        run(SoftmaxBackward{.dy = matrix(dp, kRows, w),
                            .y = (log ? lp : yp).data(),
                            .sum = (log ? sum_dy : dot).data(),
                            .dx = r.data(),
                            .log = log});
        expect(r, log ? log_want_dx : want_dx);
      }
    }
  }
}

// Masked elements (-inf) do not count. If a whole part is masked, its maximum
// is -inf, so that its sum does not count either.
TEST(SoftmaxTest, SumsOfMaskedParts) {
  for (DType t : kFloats) {
    const double inf = INFINITY;
    const Elements x(t, {-inf, 1, -inf, 1, -inf, -inf, -inf, -inf});
    Elements max(stat_of(t), 2), sum(stat_of(t), 2);
    run(RowMaxSum{matrix(x, 2, 4, 4), max.data(), sum.data()});
    EXPECT_TRUE(near(max, {1, -inf}, 0));
    EXPECT_TRUE(near(sum, {2, 4}, 0));
  }
}

// Masked elements do not count even if a GPU loads them together with others.
TEST(SoftmaxTest, SumsOfLongRowsWithInfinities) {
  constexpr double kInf = INFINITY;
  constexpr int64_t kN = 43;
  struct Change {
    int64_t begin, end;
    double to;
  };
  struct Row {
    std::vector<Change> changes;
    double max, sum;  // of ones with these changes
  };
  const Row all[] = {{{}, 1, kN},
                     {{{0, kN, -kInf}}, -kInf, kN},
                     {{{0, 16, -kInf}}, 1, kN - 16},
                     {{{8, 24, -kInf}, {40, 43, -kInf}}, 1, kN - 19},
                     {{{0, 42, -kInf}}, 1, 1},
                     {{{0, kN, -kInf}, {13, 14, 2}}, 2, 1},
                     {{{0, kN, -kInf}, {3, 4, NAN}}, NAN, NAN},
                     {{{20, 21, NAN}}, NAN, NAN},
                     {{{20, 21, kInf}}, kInf, NAN}};
  for (DType t : kFloats)
    for (const Row& row : all) {
      std::vector<double> x(kN, 1);
      for (const Change& c : row.changes)
        std::fill(x.begin() + c.begin, x.begin() + c.end, c.to);
      Elements max(stat_of(t), 1), sum(stat_of(t), 1);
      const Elements in(t, x);
      run(RowMaxSum{matrix(in, 1, kN, kN), max.data(), sum.data()});
      EXPECT_TRUE(std::isnan(row.max) || max[0] == row.max) << row.max;
      EXPECT_TRUE(near(sum, {row.sum})) << row.max << " " << row.sum;
    }
}

TEST(SoftmaxTest, MaskedAndExtremeRows) {
  for (DType t : kFloats) {
    const double inf = INFINITY;
    const Elements x(t, {-inf, 0,     -inf, 0,     // half masked
                         -inf, -inf,  -inf, -inf,  // all masked
                         1000, -1000, 1000, -1000, NAN, 1, 2, 3, 1, inf, 2, 3});
    Elements y(t, 20);
    run(Softmax{.x = matrix(x, 5, 4, 4), .y = y.data()});
    EXPECT_TRUE(near(y, {0,   0.5, 0,   0.5, NAN, NAN, NAN, NAN, 0.5, 0,
                         0.5, 0,   NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN}));
    run(Softmax{.x = matrix(x, 2, 4, 4), .y = y.data(), .log = true});
    EXPECT_EQ(y[0], -inf);
    EXPECT_TRUE(std::isnan(y[4]));
  }
}

TEST(SoftmaxTest, InPlaceAndEmpty) {
  for (DType t : kFloats) {
    Elements x = Elements::random(t, 3 * 50);
    auto want = zeros(150);
    reference::softmax(3, 50, x.doubles().data(), want.data());
    run(Softmax{.x = matrix(x, 3, 50, 50), .y = x.data()});
    EXPECT_TRUE(near(x, want));
    run(Softmax{{.type = t, .rows = 3, .stride = 7}});
    run(Softmax{{.type = t, .n = 7, .stride = 7}});
    EXPECT_THROW(run(Softmax{{.type = DType::kI32, .n = 7, .stride = 7}}),
                 Error);
  }
}

struct NormCase {
  bool rms, beta, added;  // added: of a sum, which has a cotangent of its own
};

TEST(NormTest, ForwardAndBackwardWholeAndInPieces) {
  for (DType t : kFloats)
    for (int64_t n : kLengths)
      for (int64_t rows : {int64_t{1}, int64_t{5}, int64_t{131}})
        for (const NormCase& c :
             {NormCase{false, true, false}, NormCase{false, false, true},
              NormCase{false, true, true}, NormCase{true, false, false},
              NormCase{true, false, true}}) {
          if (rows * n > 200000) continue;
          SCOPED_TRACE(std::string(name(t)) + " rows " + std::to_string(rows) +
                       " n " + std::to_string(n) + " rms " +
                       std::to_string(c.rms) + " added " +
                       std::to_string(c.added));
          const DType st = stat_of(t);
          const int64_t stride = n + 5, size = rows * n;
          const double eps = 1e-3, tol = 8 * tolerance(t);
          const Elements x = Elements::random(t, rows * stride, -1, 3);
          const Elements dy = Elements::random(t, rows * stride, -1, 1, 3);
          const Elements gamma = Elements::random(t, n, 0.5, 1.5, 4);
          const Elements beta = Elements::random(t, n, -1, 1, 5);
          Norm a{.x = matrix(x, rows, n, stride), .gamma = gamma.data()};
          a.beta = c.beta ? beta.data() : nullptr;
          const Elements residual =
              Elements::random(t, rows * stride, -2, 2, 6);
          const Elements dsum = Elements::random(t, rows * stride, -1, 1, 7);
          Elements sum(t, size);
          if (c.added) {
            a.residual = matrix(residual, rows, n, stride);
            a.sum = sum.data();
          }

          auto x64 = dense(x, rows, n, stride);
          if (c.added) {
            const auto r64 = dense(residual, rows, n, stride);
            Elements rounded(t, size);
            for (int64_t i = 0; i < size; ++i) rounded.set(i, x64[i] + r64[i]);
            x64 = rounded.doubles();
          }
          const auto dy64 = dense(dy, rows, n, stride);
          const auto gamma64 = gamma.doubles(), beta64 = beta.doubles();
          auto mean64 = zeros(rows), rstd64 = zeros(rows), y64 = zeros(size),
               dx64 = zeros(size), dgamma64 = zeros(n), dbeta64 = zeros(n);
          reference::norm(rows, n, x64.data(), gamma64.data(),
                          c.beta ? beta64.data() : nullptr, c.rms, eps,
                          mean64.data(), rstd64.data(), y64.data());
          reference::norm_backward(rows, n, x64.data(), gamma64.data(), c.rms,
                                   mean64.data(), rstd64.data(), dy64.data(),
                                   dx64.data(), dgamma64.data(),
                                   dbeta64.data());
          if (c.added) {
            const auto more = dense(dsum, rows, n, stride);
            for (int64_t i = 0; i < size; ++i) dx64[i] += more[i];
          }
          // If n is 1, rstd is 1 / sqrt(eps), and dx is a difference of equal
          // numbers.
          const double scale = c.rms || n > 1 ? 1 : 40;

          Elements mean(st, rows), rstd(st, rows), y(t, size), dx(t, size),
              dgamma(st, n, 3), dbeta(st, n, 3);
          void* mean_p = c.rms ? nullptr : mean.data();
          run(NormForward{.of = a,
                          .eps = eps,
                          .mean = mean_p,
                          .rstd = rstd.data(),
                          .y = y.data()});
          EXPECT_TRUE(near(y, y64, tol * scale));
          EXPECT_TRUE(near(rstd, rstd64, 1e-5));
          if (c.added) {
            EXPECT_TRUE(near(sum, x64, 0));
            a.x = matrix(sum, rows, n);
            a.residual = {}, a.sum = nullptr;
            a.dsum = matrix(dsum, rows, n, stride);
          }
          a.mean = mean_p, a.rstd = rstd.data();
          a.dy = matrix(dy, rows, n, stride);
          run(NormBackward{.of = a,
                           .dx = dx.data(),
                           .dgamma = dgamma.data(),
                           .dbeta = dbeta.data()});
          EXPECT_TRUE(near(dx, dx64, tol * scale));
          const double sum_tol =
              (st == DType::kF64 ? 1e-12 : 1e-5) * scale * std::sqrt(rows);
          EXPECT_TRUE(near(dgamma, dgamma64, sum_tol));
          EXPECT_TRUE(near(dbeta, dbeta64, sum_tol));

          // The same in pieces, by the kernels for split rows.
          Elements sums(st, rows), sq(st, rows), m2(st, rows), r2(st, rows),
              s1(st, rows), s2(st, rows);
          run(RowSum{a.x, sums.data()});
          for (int64_t i = 0; i < rows; ++i)
            m2.set(i, sums[i] / static_cast<double>(n));
          void* m2_p = c.rms ? nullptr : m2.data();
          run(RowCenteredSumSquares{a.x, m2_p, sq.data()});
          for (int64_t i = 0; i < rows; ++i)
            r2.set(i, 1 / std::sqrt(sq[i] / static_cast<double>(n) + eps));
          Norm b = a;
          b.mean = m2_p, b.rstd = r2.data();
          run(NormApply{.of = b, .y = y.data()});
          EXPECT_TRUE(near(y, y64, tol * scale));
          void* s1_p = c.rms ? nullptr : s1.data();
          run(NormBackwardSums{.of = b, .s1 = s1_p, .s2 = s2.data()});
          run(NormBackwardApply{.of = b,
                                .s1 = s1_p,
                                .s2 = s2.data(),
                                .inv_n = 1.0 / static_cast<double>(n),
                                .dx = dx.data()});
          EXPECT_TRUE(near(dx, dx64, tol * scale));
          dgamma = Elements(st, n, 3);
          run(NormBackward{.of = b, .dgamma = dgamma.data()});
          EXPECT_TRUE(near(dgamma, dgamma64, sum_tol));
          // dx in place of a contiguous dy.
          Elements in_place(t, dy64);
          a.dy = matrix(in_place, rows, n);
          run(NormBackward{.of = a,
                           .dx = in_place.data(),
                           .dgamma = dgamma.data(),
                           .dbeta = dbeta.data()});
          EXPECT_TRUE(near(in_place, dx64, tol * scale));
          EXPECT_TRUE(near(dgamma, dgamma64, sum_tol));
          if (HasFailure()) return;
        }
}

// So many rows that a GPU sums over them in more than one pass.
TEST(NormTest, ParametersOfManyRows) {
  constexpr DType t = DType::kF64;
  const int64_t rows = 4200, n = 33, size = rows * n;
  const Elements x = Elements::random(t, size, -1, 3);
  const Elements dy = Elements::random(t, size, -1, 1, 3);
  const Elements gamma(t, n, 1.25), mean(t, rows, 0.5), rstd(t, rows, 0.75);
  const Norm a{.x = matrix(x, rows, n),
               .gamma = gamma.data(),
               .mean = mean.data(),
               .rstd = rstd.data(),
               .dy = matrix(dy, rows, n)};
  auto dx64 = zeros(size), dgamma64 = zeros(n), dbeta64 = zeros(n);
  reference::norm_backward(rows, n, x.doubles().data(), gamma.doubles().data(),
                           false, mean.doubles().data(), rstd.doubles().data(),
                           dy.doubles().data(), dx64.data(), dgamma64.data(),
                           dbeta64.data());
  Elements dx(t, size), dgamma(t, n, 3), dbeta(t, n, 3);
  run(NormBackward{.of = a,
                   .dx = dx.data(),
                   .dgamma = dgamma.data(),
                   .dbeta = dbeta.data()});
  EXPECT_TRUE(near(dgamma, dgamma64, 1e-11));
  EXPECT_TRUE(near(dbeta, dbeta64, 1e-11));
}

// The sum overwrites a summand, and dx overwrites the sum's cotangent.
TEST(NormTest, SumsInPlace) {
  const int64_t rows = 5, n = 100, size = rows * n;
  for (DType t : kFloats)
    for (bool second : {false, true}) {
      const DType st = stat_of(t);
      const double tol = 8 * tolerance(t);
      Elements x = Elements::random(t, size, -1, 3),
               dsum = Elements::random(t, size);
      Elements other = Elements::random(t, size, -2, 2, 6);
      const Elements dy = Elements::random(t, size, -1, 1, 3),
                     gamma(t, n, 1.25);
      Elements sum(t, size), y(t, size), rstd(st, rows), want_y(t, size),
          want_dx(t, size);
      Norm a{.x = matrix(x, rows, n),
             .gamma = gamma.data(),
             .residual = matrix(other, rows, n),
             .sum = sum.data()};
      const auto forward = [&](Elements& to) {
        run(NormForward{
            .of = a, .eps = 1e-3, .rstd = rstd.data(), .y = to.data()});
      };
      forward(want_y);
      Elements& place = second ? other : x;
      a.sum = place.data();
      forward(y);
      EXPECT_TRUE(near(y, want_y.doubles(), tol));
      EXPECT_TRUE(near(place, sum.doubles(), 0));
      a = {.x = matrix(place, rows, n),
           .gamma = gamma.data(),
           .rstd = rstd.data(),
           .dy = matrix(dy, rows, n),
           .dsum = matrix(dsum, rows, n)};
      run(NormBackward{.of = a, .dx = want_dx.data()});
      run(NormBackward{.of = a, .dx = dsum.data()});
      EXPECT_TRUE(near(dsum, want_dx.doubles(), tol));
    }
}

TEST(NormTest, StableFarFromZero) {
  const int64_t n = 512;
  Elements x(DType::kF32, n), y(DType::kF32, n), mean(DType::kF32, 1),
      rstd(DType::kF32, 1);
  for (int64_t i = 0; i < n; ++i) x.set(i, 10000 + i % 2);
  const Elements gamma(DType::kF32, n, 1);
  run(NormForward{.of = {.x = matrix(x, 1, n), .gamma = gamma.data()},
                  .mean = mean.data(),
                  .rstd = rstd.data(),
                  .y = y.data()});
  EXPECT_NEAR(y[0], -1, 1e-5);
  EXPECT_NEAR(y[1], 1, 1e-5);
}

TEST(NormTest, EmptyParts) {
  for (DType t : kFloats) {
    const DType st = stat_of(t);
    Elements stat(st, 3, 1), s1(st, 3, 9), s2(st, 3, 9), g(st, 4, 9);
    Norm a{.x = {.type = t, .rows = 3, .stride = 10}};
    a.mean = a.rstd = stat.data();
    a.dy = a.x;
    run(NormApply{.of = a});
    run(RowCenteredSumSquares{a.x, stat.data(), s1.data()});
    EXPECT_TRUE(near(s1, {0, 0, 0}));
    run(NormBackwardSums{.of = a, .s1 = s1.data(), .s2 = s2.data()});
    EXPECT_TRUE(near(s2, {0, 0, 0}));
    a.x.rows = 0, a.x.n = 4;  // no rows: the parameters' gradients are zeros
    run(NormBackward{.of = a, .dgamma = g.data()});
    EXPECT_TRUE(near(g, {0, 0, 0, 0}));
  }
}

// Looks up the rows lo..hi of a table.
Embedding look_up(const Matrix& table, const Elements& ids, int64_t lo,
                  int64_t hi, Elements& out) {
  return {.table = table,
          .ids_type = ids.type(),
          .count = ids.size(),
          .ids = ids.data(),
          .lo = lo,
          .hi = hi,
          .out = out.data()};
}
EmbeddingBackward scatter(const Matrix& dy, const Elements& ids, int64_t lo,
                          int64_t hi, Elements& dtable,
                          bool accumulate = false) {
  return {.dy = dy,
          .ids_type = ids.type(),
          .ids = ids.data(),
          .lo = lo,
          .hi = hi,
          .size = hi - lo,
          .dtable_type = dtable.type(),
          .accumulate = accumulate,
          .dtable = dtable.data()};
}

TEST(EmbeddingTest, ForwardAndBackward) {
  for (DType t : kFloats)
    for (DType it : {DType::kI32, DType::kI64})
      for (int64_t h : {1, 7, 64, 100}) {
        const int64_t lo = 10, hi = 17, count = 40, stride = h + 3;
        const Elements table = Elements::random(t, (hi - lo) * stride);
        Elements ids = Elements::random(it, count, 5, 22);
        const Elements dy = Elements::random(t, count * stride, -1, 1, 2);
        ids.set(3, lo), ids.set(4, hi - 1), ids.set(5, hi), ids.set(6, lo - 1);
        Elements out(t, count * h, 9);
        run(look_up(matrix(table, hi - lo, h, stride), ids, lo, hi, out));
        auto want = zeros(count * h), dwant = zeros((hi - lo) * h);
        for (int64_t i = 0; i < count; ++i) {
          const auto id = static_cast<int64_t>(ids[i]);
          if (id < lo || id >= hi) continue;
          for (int64_t j = 0; j < h; ++j) {
            want[static_cast<size_t>(i * h + j)] =
                table[(id - lo) * stride + j];
            dwant[static_cast<size_t>((id - lo) * h + j)] += dy[i * stride + j];
          }
        }
        EXPECT_TRUE(near(out, want, 0));
        for (DType dt : {t, stat_of(t)}) {
          Elements dtable(dt, (hi - lo) * h, 9);
          run(scatter(matrix(dy, count, h, stride), ids, lo, hi, dtable));
          EXPECT_TRUE(near(dtable, dwant, 3 * tolerance(dt)));
        }
        Elements sum(t, (hi - lo) * h, 1);
        run(scatter(matrix(dy, count, h, stride), ids, lo, hi, sum, true));
        for (double& v : dwant) v += 1;
        EXPECT_TRUE(near(sum, dwant, 3 * tolerance(t)));
      }
  Elements none(DType::kF32, 6, 9);
  const Elements ids(DType::kI64, {0, 5});
  run(look_up({.n = 3, .stride = 3}, ids, 4, 4, none));
  EXPECT_TRUE(near(none, {0, 0, 0, 0, 0, 0}));
  Elements no_rows(DType::kF32, 0);
  run(scatter(matrix(none, 2, 3), ids, 4, 4, no_rows));
}

TEST(EmbeddingTest, SumsOfBags) {
  for (DType t : {DType::kF32, DType::kF64})
    for (DType it : {DType::kI32, DType::kI64})
      for (int64_t h : {1, 7, 64, 100})
        for (int64_t bag : {0, 2, 9}) {
          const int64_t lo = 10, hi = 17, bags = 5, stride = h + 3;
          const Elements table = Elements::random(t, (hi - lo) * stride);
          const Elements ids = Elements::random(it, bags * bag, 8, 20);
          Elements out(t, bags * h, 9);
          Embedding a =
              look_up(matrix(table, hi - lo, h, stride), ids, lo, hi, out);
          a.count = bags;
          a.bag = bag;
          run(a);
          auto want = zeros(bags * h);
          for (int64_t i = 0; i < bags * bag; ++i) {
            const auto id = static_cast<int64_t>(ids[i]);
            if (id < lo || id >= hi) continue;
            for (int64_t j = 0; j < h; ++j)
              want[static_cast<size_t>(i / bag * h + j)] +=
                  table[(id - lo) * stride + j];
          }
          EXPECT_TRUE(near(out, want));
        }
}

TEST(WriteRowsTest, WritesTheRowsThatHaveAPlace) {
  for (DType t : kAll)
    for (DType it : {DType::kI32, DType::kI64})
      for (int64_t n : {1, 7, 64}) {
        const int64_t outer = 3, count = 5, size = 6;
        const Elements rows = Elements::random(t, outer * count * n),
                       ids(it, {4, -1, 0, 6, 5});
        Elements to = Elements::random(t, outer * size * n, -2, 2, 2);
        std::vector<double> want = to.doubles();
        for (int64_t o = 0; o < outer; ++o)
          for (int64_t i : {0, 2, 4})
            for (int64_t j = 0; j < n; ++j)
              want[static_cast<size_t>(
                  (o * size + static_cast<int64_t>(ids[i])) * n + j)] =
                  rows[(o * count + i) * n + j];
        run(WriteRows{t, outer, count, n, rows.data(), it, ids.data(), 0, size,
                      0, size, to.data()});
        EXPECT_TRUE(near(to, want, 0)) << name(t);
        // A part: ids 4 and 5 are rows 1 and 2.
        Elements part(t, outer * size * n, 1);
        want.assign(want.size(), 1);
        for (int64_t o = 0; o < outer; ++o)
          for (int64_t i : {0, 4})
            for (int64_t j = 0; j < n; ++j)
              want[static_cast<size_t>((o * size + (i ? 2 : 1)) * n + j)] =
                  rows[(o * count + i) * n + j];
        run(WriteRows{t, outer, count, n, rows.data(), it, ids.data(), 4, 6, 1,
                      size, part.data()});
        EXPECT_TRUE(near(part, want, 0)) << name(t);
      }
}

// Ids that appear once, and others that appear more and more often.
TEST(EmbeddingTest, AddsAllThatAskedForARow) {
  const int64_t times[] = {1, 2, 3, 0, 4, 5, 8, 17, 100, 1};
  const int64_t h = 3, table_rows = std::ssize(times);
  std::vector<double> ids;
  for (int64_t i = 0; i < table_rows; ++i)
    ids.insert(ids.end(), static_cast<size_t>(times[i]),
               static_cast<double>(i));
  std::shuffle(ids.begin(), ids.end(), std::mt19937(1));
  const auto count = std::ssize(ids);
  for (DType t : {DType::kF32, DType::kI32, DType::kI64}) {
    const Elements dy(t, count * h, 1);
    Elements dtable(t, table_rows * h, 9);
    run(scatter(matrix(dy, count, h), Elements(DType::kI64, ids), 0, table_rows,
                dtable));
    for (int64_t i = 0; i < table_rows * h; ++i)
      EXPECT_EQ(dtable[i], static_cast<double>(times[i / h]))
          << name(t) << " " << i;
  }
}

TEST(CrossEntropyTest, SplitVocabularyMatchesTheWhole) {
  for (DType t : kFloats)
    for (double smoothing : {0.0, 0.1})
      for (DType it : {DType::kI32, DType::kI64}) {
        const DType st = stat_of(t);
        const int64_t v = 101, stride = v + 2, cuts[] = {0, 33, 33, 101};
        const Elements x = Elements::random(t, kRows * stride, -5, 5);
        Elements targets(it, kRows), scale(st, kRows), max(st, kRows),
            sum(st, kRows), log_sum(st, kRows), picked(st, kRows);
        const int64_t ids[] = {0, 32, 33, 100, -100};
        for (int64_t i = 0; i < kRows; ++i) {
          targets.set(i, static_cast<double>(ids[i]));
          scale.set(i, i == 4 ? 0 : 0.25 * static_cast<double>(i + 1));
        }
        const auto x64 = dense(x, kRows, v, stride);
        auto loss = zeros(kRows), dx64 = zeros(kRows * v);
        reference::cross_entropy(kRows, v, x64.data(), ids, smoothing,
                                 scale.doubles().data(), loss.data(),
                                 dx64.data());
        run(RowMaxSum{matrix(x, kRows, v, stride), max.data(), sum.data()});
        Elements total(st, kRows);
        run(RowSum{matrix(x, kRows, v, stride), total.data()});
        for (int64_t i = 0; i < kRows; ++i) log_sum.set(i, std::log(sum[i]));
        Elements dx(t, kRows * v, 9);
        for (int p = 0; p < 3; ++p) {
          const Elements& in = x;
          const auto* base = static_cast<const char*>(in.data());
          const Matrix logits{t, kRows, cuts[p + 1] - cuts[p],
                              base + cuts[p] * size_of(t), stride};
          run(CePick{.logits = logits,
                     .target_type = it,
                     .targets = targets.data(),
                     .lo = cuts[p],
                     .hi = cuts[p + 1],
                     .accumulate = p > 0,
                     .picked = picked.data()});
          CeBackward b{.logits = logits, .target_type = it};
          b.max = max.data(), b.log_sum = log_sum.data();
          b.targets = targets.data();
          b.lo = cuts[p], b.hi = cuts[p + 1];
          b.scale = scale.data();
          b.smoothing = smoothing, b.vocabulary = v;
          b.dlogits = dx.at(cuts[p]), b.dlogits_stride = v;
          run(b);
        }
        EXPECT_TRUE(near(dx, dx64));
        auto got = zeros(kRows);
        for (int64_t i = 0; i < 4; ++i) {
          const double lse = max[i] + log_sum[i];
          got[static_cast<size_t>(i)] =
              lse - (1 - smoothing) * picked[i] -
              smoothing * total[i] / static_cast<double>(v);
          EXPECT_NEAR(got[static_cast<size_t>(i)], loss[static_cast<size_t>(i)],
                      1e-5);
        }
        EXPECT_EQ(picked[4], 0);
        // The gradient overwrites the logits.
        Elements y(t, x64);
        CeBackward b{.logits = matrix(y, kRows, v), .target_type = it};
        b.dlogits = y.data(), b.dlogits_stride = v;
        b.max = max.data(), b.log_sum = log_sum.data();
        b.targets = targets.data(), b.hi = v, b.scale = scale.data();
        b.smoothing = smoothing, b.vocabulary = v;
        run(b);
        EXPECT_TRUE(near(y, dx64));
      }
}

}  // namespace
}  // namespace dtensor::kernels
