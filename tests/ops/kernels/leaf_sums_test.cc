// SPDX-License-Identifier: Apache-2.0
// Sums over rows are compared, byte for byte, with a scalar program that
// follows the definition in docs/reproducible.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/ops/kernels/norm.h"
#include "dtensor/ops/kernels/rows.h"
#include "dtensor/placement/exact.h"

namespace dtensor::kernels {
namespace {

using std::vector;

template <class T>
double defined(const vector<T>& x) {
  Exact exact;
  double in_turn = 0;
  for (size_t begin = 0; begin < x.size(); begin += 128) {
    T lanes[16] = {};
    for (size_t i = begin; i < std::min(x.size(), begin + 128); ++i)
      lanes[i % 16] += x[i];
    for (size_t w = 8; w > 0; w /= 2)
      for (size_t i = 0; i < w; ++i) lanes[i] += lanes[i + w];
    exact.add(static_cast<double>(lanes[0]));
    in_turn += static_cast<double>(lanes[0]);
  }
  return std::is_same_v<T, float> ? exact.value() : in_turn;
}

template <class T>
vector<T> numbers(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  vector<T> x(n);
  for (T& y : x)
    y = static_cast<T>(
        std::ldexp(normal(random), static_cast<int>(random() % 21) - 10));
  return x;
}

template <class T>
Matrix row(const vector<T>& x) {
  return {.type = sizeof(T) == 4 ? DType::kF32 : DType::kF64,
          .rows = 1,
          .n = std::ssize(x),
          .data = x.data(),
          .stride = std::ssize(x)};
}

void run(const auto& kernel) { cpu_kernels().run(Stream{}, kernel); }

template <class T>
void expect_norms(size_t n) {
  const auto x = numbers<T>(n, 1), gamma = numbers<T>(n, 2),
             dy = numbers<T>(n, 3);
  vector<T> y(n), beta(n), dx(n), terms, more;
  const double inv_n = 1 / static_cast<double>(n);
  T mean = 0, rstd = 0;
  Norm norm{.x = row(x), .gamma = gamma.data(), .beta = beta.data()};
  norm.by_leaves = true;
  run(NormForward{
      .of = norm, .eps = 0.1, .mean = &mean, .rstd = &rstd, .y = y.data()});
  ASSERT_EQ(mean, static_cast<T>(defined(x) * inv_n)) << n;
  for (T v : x) terms.push_back((v - mean) * (v - mean));
  ASSERT_EQ(rstd, static_cast<T>(1 / std::sqrt(defined(terms) * inv_n + 0.1)))
      << n;

  norm.rstd = &rstd, norm.dy = row(dy);
  for (const T* of : {static_cast<const T*>(nullptr), &std::as_const(mean)}) {
    norm.mean = of;
    run(NormBackward{.of = norm, .dx = dx.data()});
    const T m = of ? mean : T(0);
    terms.clear(), more.clear();
    for (size_t i = 0; i < n; ++i) {
      const T d = dy[i] * gamma[i];
      terms.push_back(of ? d : T(0));
      more.push_back(d * (x[i] - m));
    }
    const double s = rstd;
    const T s1 = static_cast<T>(defined(terms)),
            s2 = static_cast<T>(defined(more) * s),
            c1 = static_cast<T>(s * double{s1} * inv_n),
            c2 = static_cast<T>(s * s * double{s2} * inv_n);
    for (size_t i = 0; i < n; ++i)
      ASSERT_EQ(dx[i], rstd * (dy[i] * gamma[i]) - c1 - (x[i] - m) * c2 + T(0))
          << n << " " << i;
  }
}

template <class T>
void expect_softmax(size_t n) {
  const auto x = numbers<T>(n, 1), dy = numbers<T>(n, 2);
  vector<T> y(n), dx(n);
  // The exponentials, which are not sums.
  const T most = *std::max_element(x.begin(), x.end()), one = 1;
  Softmax a{.x = row(x), .max = &most, .sum = &one, .y = y.data()};
  run(a);
  vector<T> terms = y;
  a.max = a.sum = nullptr, a.by_leaves = true;
  run(a);
  const T scale = 1 / static_cast<T>(defined(terms));
  for (size_t i = 0; i < n; ++i)
    ASSERT_EQ(y[i], terms[i] * scale) << n << " " << i;
  run(SoftmaxBackward{
      .dy = row(dy), .y = y.data(), .dx = dx.data(), .by_leaves = true});
  for (size_t i = 0; i < n; ++i) terms[i] = y[i] * dy[i];
  const T sum = static_cast<T>(defined(terms));
  for (size_t i = 0; i < n; ++i)
    ASSERT_EQ(dx[i], y[i] * (dy[i] - sum)) << n << " " << i;
}

TEST(LeafSumsTest, FollowTheDefinition) {
  for (size_t n = 1; n <= 5000; n += n < 300 ? 1 : 1399) {
    expect_norms<float>(n);
    expect_norms<double>(n);
    expect_softmax<float>(n);
    expect_softmax<double>(n);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace dtensor::kernels
