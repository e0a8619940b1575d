// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "dtensor/scopes.h"
#include "tests/array.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::values;

constexpr double kX[] = {3, -1, 4, 1, -5, 9, 2, -6, 5, 3, 5, -8};
constexpr double kAlong0[] = {3, -1, 4, 4, -6, 13, 6, -12, 18, 9, -7, 10};
constexpr double kAlong1[] = {3, 2, 6, 1, -4, 5, 2, -4, 1, 3, 8, 0};

std::vector<double> listed(std::span<const double> v) {
  return {v.begin(), v.end()};
}

TEST(Cumsum, ByValueInEveryLayout) {
  for (const char* layout : {"R,R", "S0,R", "S0,S1", "S1,S0", "S1,S1", "P,S1",
                             "S0,S0", "[{b} {a}],R"}) {
    const Mesh mesh = Mesh::parse("a=2,b=3");
    run(6, [&](Runtime&) {
      const Shape shape{4, 3};
      Layout l;
      try {
        l = parse_layout(layout, mesh, shape);
      } catch (const Error&) {
        return;
      }
      DistTensor x = DistTensor::from_global(Tensor::from(shape, kX), mesh, {})
                         .redistribute(l)
                         .detach();
      EXPECT_EQ(values(cumsum(x, 0)), listed(kAlong0)) << layout;
      EXPECT_EQ(values(cumsum(x, -1)), listed(kAlong1)) << layout;
      // dx[i] is the sum of the cotangents, all 1, of the sums that contain
      // x[i].
      x.set_requires_grad();
      GradOptions options;
      options.cotangent = ones(shape, mesh, {}, DType::kF64);
      const auto g = values(grad(cumsum(x, 0), {x}, options)[0]);
      for (size_t i = 0; i < 12; ++i)
        EXPECT_EQ(g[i], 4 - static_cast<double>(i / 3)) << layout;
    });
  }
}

TEST(Cumsum, GathersNothing) {
  const Mesh mesh = Mesh::parse("a=4");
  run(4, [&](Runtime& rt) {
    const DistTensor x = randn({7, 50}, mesh, "S1", DType::kF32, {1, 1});
    rt.context().record = true;
    cumsum(x, 1);
    ASSERT_EQ(rt.context().events.size(), 1u);
    // One f64 per row and rank before this one.
    EXPECT_EQ(rt.context().events[0].predicted, 7 * 3 * 8);
    EXPECT_EQ(rt.context().events[0].counted, 7 * 8 * rt.rank());
    NoComm scope;
    EXPECT_NO_THROW(cumsum(x, 0));
    EXPECT_NE(testing::error_of([&] { cumsum(x, 1); }), "no error");
  });
}

// Two of the 2 x 2 ranks have no row of [1, 4].
TEST(Cumsum, NoRows) {
  const Mesh mesh = Mesh::parse("a=2,b=2");
  run(4, [&](Runtime&) {
    const Tensor all = Tensor::from(Shape{1, 4}, kX);
    const DistTensor x = DistTensor::from_global(all, mesh, "S0,S1");
    EXPECT_EQ(values(cumsum(x, 1)), (std::vector<double>{3, 2, 6, 7}));
  });
}

TEST(Cumsum, EmptyPartsAndIntegers) {
  const Mesh mesh = Mesh::parse("a=4");
  run(4, [&](Runtime&) {
    const int64_t few[] = {int64_t{1} << 60, 7, -9};
    const DistTensor x =
        DistTensor::from_global(Tensor::from(Shape{3}, few), mesh, "S0");
    const Tensor y = cumsum(x, 0).full();
    EXPECT_EQ(y.ptr<int64_t>()[2], (int64_t{1} << 60) - 2);
    const bool flags[] = {true, true, false};
    const DistTensor b =
        DistTensor::from_global(Tensor::from(Shape{3}, flags), mesh, "S0");
    EXPECT_EQ(cumsum(b, 0).dtype(), DType::kI64);
    EXPECT_EQ(cumsum(b, 0).full().at(2), 2);
    EXPECT_EQ(testing::error_of([&] { cumsum(x, 1); }).substr(0, 8),
              "[cumsum]");
  });
}

// d cumprod, by its definition: the sum over j of the products up to j without
// element i.
std::vector<double> product_slopes(const std::vector<double>& x) {
  std::vector<double> slopes(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    for (size_t j = i; j < x.size(); ++j) {
      double product = static_cast<double>(j + 1);  // the cotangent
      for (size_t k = 0; k <= j; ++k)
        if (k != i) product *= x[k];
      slopes[i] += product;
    }
  return slopes;
}

TEST(Cumprod, GradientWithZeros) {
  for (const std::vector<double>& given :
       {std::vector<double>{2, -1, 0.5, 3, -2},
        {2, 0, 0.5, 3, -2},
        {0, 1, 2, 3, 4},
        {2, 3, 0, 5, 0},
        {1, 2, 3, 4, 0}})
    for (const char* layout : {"R", "S0"})
      run(2, [&](Runtime& rt) {
        DistTensor x = DistTensor::from_global(Tensor::from({5}, given.data()),
                                               rt.mesh(), layout);
        x.set_requires_grad();
        const double dy[] = {1, 2, 3, 4, 5};
        const DistTensor y = cumprod(x, 0);
        const std::vector<double> got =
            values(grad(y, {x},
                        {.cotangent = DistTensor::from_global(
                             Tensor::from({5}, dy), rt.mesh(), {})})[0]);
        const std::vector<double> want = product_slopes(given);
        for (size_t i = 0; i < 5; ++i)
          EXPECT_NEAR(got[i], want[i], 1e-12) << layout << " " << i;
      });
}

// As in torch, the last of equal maxima counts, and every NaN is a new maximum.
TEST(Cummax, EqualElementsAndNaN) {
  const double given[] = {1, 3, 3, 2, std::nan(""), 9, std::nan("")};
  for (const char* layout : {"R", "S0"})
    run(3, [&](Runtime& rt) {
      DistTensor x =
          DistTensor::from_global(Tensor::from({7}, given), rt.mesh(), layout);
      x.set_requires_grad();
      const auto [most, at] = cummax(x, 0);
      EXPECT_EQ(values(at), (std::vector<double>{0, 1, 2, 2, 4, 4, 6}))
          << layout;
      EXPECT_EQ(values(most)[3], 3);
      EXPECT_TRUE(std::isnan(values(most)[5]));
      EXPECT_EQ(values(grad(sum(most), {x})[0]),
                (std::vector<double>{1, 1, 2, 0, 2, 0, 1}))
          << layout;
      EXPECT_EQ(values(cummin(x, 0).second),
                (std::vector<double>{0, 0, 0, 0, 4, 4, 6}))
          << layout;
    });
}

// log(exp(x[0]) + ... + exp(x[i])), and dx[i], the sum over j >= i of the
// cotangent j + 1 times exp(x[i] - y[j]), both by their definitions.
std::pair<std::vector<double>, std::vector<double>> log_sums(
    const std::vector<double>& x) {
  std::vector<double> y, dx(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double most = *std::max_element(x.begin(), x.begin() + i + 1);
    double sum = 0;
    for (size_t j = 0; j <= i; ++j) sum += std::exp(x[j] - most);
    y.push_back(most + std::log(sum));
    for (size_t j = 0; j <= i; ++j)
      dx[j] += static_cast<double>(i + 1) * std::exp(x[j] - y[i]);
  }
  return {y, dx};
}

// exp(x) would overflow, or vanish.
TEST(Logcumsumexp, LargeAndSmallNumbers) {
  for (const std::vector<double>& given :
       {std::vector<double>{2, -1, 0.5, 3, -2},
        {900, 1000, -5000, 1001, 999},
        {-2000, -1999, -2001, -3000, -1998}})
    for (const char* layout : {"R", "S0", "P"})
      for (int64_t ranks : {2, 3, 7})
        run(ranks, [&](Runtime& rt) {
          const DistTensor x =
              DistTensor::from_global(Tensor::from({5}, given.data()),
                                      rt.mesh(), {})
                  .redistribute(parse_layout(layout, rt.mesh(), {5}))
                  .detach()
                  .set_requires_grad();
          const double dy[] = {1, 2, 3, 4, 5};
          const DistTensor y = logcumsumexp(x, -1);
          const auto [want, slopes] = log_sums(given);
          const auto got = values(y);
          const auto dx =
              values(grad(y, {x},
                          {.cotangent = DistTensor::from_global(
                               Tensor::from({5}, dy), rt.mesh(), {})})[0]);
          for (size_t i = 0; i < 5; ++i) {
            EXPECT_NEAR(got[i], want[i], 1e-12) << layout << " " << i;
            EXPECT_NEAR(dx[i], slopes[i], 1e-11) << layout << " " << i;
          }
        });
}

TEST(Logcumsumexp, GathersNothing) {
  const Mesh mesh = Mesh::parse("a=4");
  run(4, [&](Runtime& rt) {
    const DistTensor x = randn({7, 50}, mesh, "S1", DType::kF32, {1, 1});
    rt.context().record = true;
    logcumsumexp(x, 1);
    ASSERT_EQ(rt.context().events.size(), 1u);
    // Two f64 per row and rank before this one.
    EXPECT_EQ(rt.context().events[0].predicted, 7 * 3 * 16);
    EXPECT_EQ(rt.context().events[0].counted, 7 * 16 * rt.rank());
    NoComm scope;
    EXPECT_NO_THROW(logcumsumexp(x, 0));
  });
}

// As long as all elements are -inf, their gradient is 0. A cotangent of 0 has a
// second derivative.
TEST(Logcumsumexp, InfinitiesAndZeros) {
  const double none = -std::numeric_limits<double>::infinity();
  const double given[] = {none, none, 0, none, std::log(3)};
  for (const char* layout : {"R", "S0"})
    run(2, [&](Runtime& rt) {
      const auto vector = [&](const double(&v)[5]) {
        return DistTensor::from_global(Tensor::from({5}, v), rt.mesh(), layout)
            .set_requires_grad();
      };
      const DistTensor x = vector(given);
      const DistTensor dy = vector({1, 0, 1, 0, 4});
      const DistTensor y = logcumsumexp(x, 0);
      const std::vector<double> want = {none, none, 0, 0, std::log(4)};
      for (size_t i = 0; i < 5; ++i)
        EXPECT_DOUBLE_EQ(values(y)[i], want[i]) << layout << " " << i;
      const DistTensor dx =
          grad(y, {x}, {.create_graph = true, .cotangent = dy})[0];
      const std::vector<double> slopes = {0, 0, 2, 0, 3};
      // d sum(dx) / d dy[j] = exp(-y[j]) (exp(x[0]) + ... + exp(x[j]))
      const std::vector<double> of_sum = {0, 0, 1, 1, 1};
      const auto got = values(dx), second = values(grad(sum(dx), {dy})[0]);
      for (size_t i = 0; i < 5; ++i) {
        EXPECT_NEAR(got[i], slopes[i], 1e-14) << layout << " " << i;
        EXPECT_NEAR(second[i], of_sum[i], 1e-14) << layout << " " << i;
      }
    });
}

TEST(Logcumsumexp, ScalarsEmptyRowsAndErrors) {
  run(4, [](Runtime& rt) {
    const Mesh mesh = Mesh::parse("a=2,b=2");
    const DistTensor one =
        DistTensor::from_global(Tensor::from({}, kX), rt.mesh(), {});
    EXPECT_EQ(values(logcumsumexp(one, 0)), (std::vector<double>{3}));
    // Two of the 2 x 2 ranks have no row of [1, 4].
    const DistTensor row =
        DistTensor::from_global(Tensor::from(Shape{1, 4}, kX), mesh, "S0,S1");
    const auto y = values(logcumsumexp(row, 1));
    const auto want = log_sums({3, -1, 4, 1}).first;
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(y[i], want[i], 1e-14);
    EXPECT_EQ(testing::error_of([&] {
                logcumsumexp(cast(row, DType::kI64), 1);
              }).substr(0, 50),
              "[logcumsumexp] takes f32, f64, bf16 or f16, but go");
    EXPECT_EQ(testing::error_of([&] { logcumsumexp(row, 2); }).substr(0, 14),
              "[logcumsumexp]");
  });
}

}  // namespace
}  // namespace dtensor
