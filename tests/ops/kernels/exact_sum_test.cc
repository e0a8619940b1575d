// SPDX-License-Identifier: Apache-2.0
// The kernels that add to exact sums, compared with plain loops.
#include "dtensor/ops/kernels/exact_sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "dtensor/ops/kernels/embedding.h"
#include "dtensor/ops/kernels/norm.h"
#include "dtensor/placement/exact.h"
#include "tests/ops/kernels/testing.h"
#include "tests/testing.h"

namespace dtensor::kernels {
namespace {

using ::dtensor::testing::error_of;

template <class T>
std::vector<T> randoms(size_t n) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  std::vector<T> x(n);
  for (T& v : x) v = static_cast<T>(normal(random));
  return x;
}

Matrix matrix(const float* data, int64_t rows, int64_t n) {
  Matrix m;
  m.data = data;
  m.rows = rows;
  m.n = m.stride = n;
  return m;
}

template <class T>
void expect_same(const std::vector<T>& got, const std::vector<T>& want) {
  ASSERT_EQ(got.size(), want.size());
  EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(T)), 0);
}

template <class T>
void sums_of() {
  const auto x = randoms<T>(4 * 5 * 6);
  // Which of the dimensions [4, 5, 6] stay, with the strides of the sum.
  const std::vector<std::pair<Shape, size_t>> outs = {
      {{0, 0, 1}, 6}, {{0, 0, 0}, 1}, {{5, 1, 0}, 20}, {{1, 0, 4}, 24}};
  for (const auto& [strides, size] : outs) {
    std::vector<Exact> got(size), want(size);
    got[0].add(2.5), want[0].add(2.5);  // the kernel adds to what is there
    run(ExactSum{.type = dtype_of<T>,
                 .shape = {4, 5, 6},
                 .in = x.data(),
                 .strides = {30, 6, 1},
                 .out = got.data(),
                 .out_strides = strides});
    for (int64_t i = 0; i < 4; ++i)
      for (int64_t j = 0; j < 5; ++j)
        for (int64_t k = 0; k < 6; ++k)
          want[static_cast<size_t>(i * strides[0] + j * strides[1] +
                                   k * strides[2])]
              .add(static_cast<float>(
                  x[static_cast<size_t>(30 * i + 6 * j + k)]));
    expect_same(got, want);
  }
}

TEST(ExactSumTest, AddsOverAnyDimensions) {
  sums_of<float>();
  sums_of<bf16>();
  sums_of<f16>();
  Exact sum;
  EXPECT_NE(error_of([&] {
              run(ExactSum{.type = DType::kF64, .out = &sum});
            }).find("f64"),
            std::string::npos);
}

template <class T>
void expect_counts(std::vector<T> x) {
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = std::ldexp(x[i], static_cast<int>(i % 40) - 20);
  x.insert(x.end(), {T(0.0), T(-0.0), T(1e-45), T(3e-39), T(3e38)});
  std::vector<int64_t> whole(ExactSquares::kCounts), parts(whole);
  const auto n = static_cast<int64_t>(x.size());
  const auto add = [](int64_t n, const T* x, std::vector<int64_t>& counts) {
    run(ExactSquares{
        .type = dtype_of<T>, .n = n, .x = x, .counts = counts.data()});
  };
  add(n, x.data(), whole);
  for (int64_t from : {int64_t{70'001}, int64_t{0}}) {
    // Counts of parts may be carried at other places; their sum is the same.
    add(from ? n - from : 70'001, x.data() + from, parts);
  }
  EXPECT_EQ(sum_of_squares(parts.data()), sum_of_squares(whole.data()));
  long double wanted = 0;
  for (T v : x) wanted += static_cast<long double>(v) * v;
  EXPECT_NEAR(sum_of_squares(whole.data()) / static_cast<double>(wanted), 1,
              1e-15);
  for (T bad : {std::numeric_limits<T>::infinity(), T(std::nan(""))}) {
    add(1, &bad, whole);
    EXPECT_TRUE(std::isnan(sum_of_squares(whole.data())));
  }
}
TEST(ExactSumTest, CountsSquaresExactly) {
  expect_counts(randoms<float>(300'000));
  expect_counts(randoms<double>(300'000));
  // Each as it is, from the smallest that counts to the largest.
  for (double x : {0x1p-149, 0x1.8p-148, 0x1.8p-140, 0x1.8p-70, 1.5,
                   0x1.23456789abcdep60, 0x1p129}) {
    std::vector<int64_t> counts(ExactSquares::kCounts);
    run(ExactSquares{
        .type = DType::kF64, .n = 1, .x = &x, .counts = counts.data()});
    EXPECT_NEAR(sum_of_squares(counts.data()) / (x * x), 1, 0x1p-30) << x;
  }
}

TEST(ExactSumTest, AddsTheRowsOfAnEmbedding) {
  const std::vector<float> dy = randoms<float>(7 * 3);
  const int64_t ids[] = {2, 0, 2, 9, 2, 3, 1};
  std::vector<Exact> got(4 * 3), want(4 * 3);
  run(EmbeddingBackward{.dy = matrix(dy.data(), 7, 3),
                        .ids = ids,
                        .lo = 0,
                        .hi = 4,
                        .size = 4,
                        .dtable_type = DType::kExact,
                        .dtable = got.data()});
  for (size_t i = 0; i < 7; ++i)
    for (size_t j = 0; ids[i] < 4 && j < 3; ++j)
      want[static_cast<size_t>(ids[i]) * 3 + j].add(dy[i * 3 + j]);
  expect_same(got, want);
}

TEST(ExactSumTest, AddsTheGradientsOfANorm) {
  const std::vector<float> x = randoms<float>(6 * 5), dy = randoms<float>(35),
                           gamma(5, 1), mean(6, 0.25f), rstd(6, 0.7f);
  std::vector<Exact> dgamma(5), dbeta(5), want_gamma(5), want_beta(5);
  std::vector<float> dx(30);
  Norm of{.x = matrix(x.data(), 6, 5)};
  of.gamma = gamma.data();
  of.mean = mean.data();
  of.rstd = rstd.data();
  of.dy = matrix(dy.data() + 5, 6, 5);
  run(NormBackward{.of = of,
                   .exact = true,
                   .dx = dx.data(),
                   .dgamma = dgamma.data(),
                   .dbeta = dbeta.data()});
  for (size_t i = 0; i < 30; ++i) {
    want_gamma[i % 5].add(dy[i + 5] * ((x[i] - 0.25f) * 0.7f));
    want_beta[i % 5].add(dy[i + 5]);
  }
  expect_same(dgamma, want_gamma);
  expect_same(dbeta, want_beta);
}

}  // namespace
}  // namespace dtensor::kernels
