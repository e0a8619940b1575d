// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
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

}  // namespace
}  // namespace dtensor
