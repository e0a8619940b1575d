// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "dtensor/ops/random.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view.h"
#include "tests/array.h"
#include "tests/ops/structured_testing.h"

namespace dtensor::testing {
namespace {

const Shape kShape{5, 7};
const Generator kSource{7, 11};

using Maker = std::function<DistTensor(const Mesh&, const Placements&)>;

// Expects the same bits on every mesh and in every layout, and that nothing is
// sent unless `sends`.
Array check_everywhere(const Maker& make, bool sends = false) {
  Array first;
  const std::vector<Case> layouts = {
      {"x=1", {"R"}},        {"x=2", {"S0"}},       {"x=3", {"S0"}},
      {"x=2,y=2", {"S0,R"}}, {"x=2,y=3", {"R,S0"}},
  };
  for (const Case& c : layouts)
    on_mesh(c.mesh, [&](const Mesh& mesh) {
      RankContext& context = RankContext::current();
      context.record = true;
      const DistTensor x = make(mesh, Placements(c.layouts[0]));
      if (!sends) {
        EXPECT_TRUE(context.events.empty()) << c.mesh;
      }
      EXPECT_EQ(x.layout(), Placements(c.layouts[0]).resolve(mesh, x.shape()));
      const Array got = array_of(x.full());
      if (c.mesh == "x=1") first = got;
      expect_near(got, first, 0, c.mesh + " " + c.layouts[0]);
    });
  return first;
}

TEST(DistributionsTest, EqualOnEveryLayout) {
  for (DType t : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    const auto like = [&](auto&& f) {
      check_everywhere([&](const Mesh& m, const Placements& p) {
        return f(full(kShape, 0.3, m, p, t));
      });
    };
    like([](const DistTensor& x) { return rand_like(x, kSource); });
    like([](const DistTensor& x) { return randn_like(x, kSource); });
    like([](const DistTensor& x) { return bernoulli(x, kSource); });
    like([](const DistTensor& x) { return normal(x, 2, kSource); });
    like([](const DistTensor& x) { return normal(1, x, kSource); });
    like([](const DistTensor& x) { return normal(x, x, kSource); });
    like([](const DistTensor& x) { return dropout1d(x, 0.4, kSource); });
    like([](const DistTensor& x) { return alpha_dropout(x, 0.4, kSource); });
    check_everywhere([&](const Mesh& m, const Placements& p) {
      return rand(kShape, m, p, t, kSource);
    });
    check_everywhere([&](const Mesh& m, const Placements& p) {
      return exponential(kShape, m, p, t, kSource, 2);
    });
    check_everywhere([&](const Mesh& m, const Placements& p) {
      return trunc_normal(kShape, m, p, t, kSource, 1, 2, -1, 2);
    });
  }
}

TEST(DistributionsTest, IntegersEqualOnEveryLayout) {
  const Array a = check_everywhere([](const Mesh& m, const Placements& p) {
    return randint_like(full(kShape, 1, m, p, DType::kI32), -3, 9, kSource);
  });
  for (const double v : a.v) EXPECT_TRUE(v >= -3 && v < 9);
}

// A partial sum stands for its total, so its numbers are drawn once.
TEST(DistributionsTest, PartialInput) {
  on_mesh("x=2", [](const Mesh& m) {
    const DistTensor x = full(kShape, 0.3, m, {}, DType::kF64);
    const DistTensor parts = x.redistribute("P");
    expect_near(array_of(rand_like(parts, kSource).full()),
                array_of(rand_like(x, kSource).full()), 0, "rand_like");
    expect_near(array_of(bernoulli(parts, kSource).full()),
                array_of(bernoulli(x, kSource).full()), 0, "bernoulli");
  });
}

TEST(DistributionsTest, Permutation) {
  for (DType t : {DType::kI32, DType::kI64}) {
    Array p = check_everywhere(
        [&](const Mesh& m, const Placements& l) {
          return randperm(1000, m, l, t, kSource);
        },
        true);
    // In a random order, about one number keeps its place.
    int fixed = 0;
    for (size_t i = 0; i < p.v.size(); ++i)
      fixed += p.v[i] == static_cast<double>(i);
    EXPECT_LE(fixed, 6);
    std::sort(p.v.begin(), p.v.end());
    for (size_t i = 0; i < p.v.size(); ++i)
      EXPECT_EQ(p.v[i], static_cast<double>(i));
  }
  on_mesh("x=2", [](const Mesh& m) {
    EXPECT_EQ(randperm(0, m, "S0").shape(), (Shape{0}));
  });
}

// Ten million numbers: the moments, the counts of 64 ranges of equal
// probability, and the correlation of neighbours. The limits are five standard
// deviations; for chi-square with 63 degrees of freedom, 63 + 5 sqrt(126).
void check_draws(const std::string& label, const DistTensor& x, double mean,
                 double deviation, const DistTensor& uniform) {
  constexpr double n = 1e7;
  const DistTensor z = mul(sub(cast(x, DType::kF64), mean), 1 / deviation);
  const double tolerance = 5 / std::sqrt(n);
  EXPECT_NEAR(sum(z).item() / n, 0, tolerance) << label;
  // The variance of z^2 is at most 8 for these distributions.
  EXPECT_NEAR(sum(square(z)).item() / n, 1, tolerance * std::sqrt(8)) << label;
  EXPECT_NEAR(
      sum(mul(slice(z, 0, 0, 9'999'999), slice(z, 0, 1, 10'000'000))).item() /
          n,
      0, tolerance)
      << label;
  const Array counts = array_of(
      bincount(cast(floor(mul(uniform, 64)), DType::kI64), {}, 64).full());
  ASSERT_EQ(counts.v.size(), 64u) << label;
  double chi_square = 0;
  for (double c : counts.v)
    chi_square += (c - n / 64) * (c - n / 64) / (n / 64);
  EXPECT_LT(chi_square, 63 + 5 * std::sqrt(126.0)) << label;
  EXPECT_GT(chi_square, 20) << label;
}

TEST(DistributionsTest, TenMillionDraws) {
  on_mesh("x=2", [](const Mesh& m) {
    const Shape n{10'000'000};
    const DistTensor u = rand(n, m, "S0", DType::kF32, kSource);
    check_draws("rand", u, 0.5, std::sqrt(1 / 12.0), u);
    // The distribution function makes a uniform number of each other one.
    const DistTensor x = randn(n, m, "S0", DType::kF32, kSource);
    const auto normal_cdf = [](const DistTensor& z) {
      return mul(add(erf(mul(z, std::sqrt(0.5))), 1), 0.5);
    };
    check_draws("randn", x, 0, 1, normal_cdf(x));
    const DistTensor e = exponential(n, m, "S0", DType::kF32, kSource, 2);
    check_draws("exponential", e, 0.5, 0.5, neg(expm1(mul(e, -2))));
    // Restricted to [-1, 2], the normal distribution has these moments.
    const double lo = 0.15865525393145705, hi = 0.9772498680518208;
    const DistTensor t =
        trunc_normal(n, m, "S0", DType::kF32, kSource, 0, 1, -1, 2);
    const double mean = 0.22963717, deviation = 0.72094559;
    check_draws("trunc_normal", t, mean, deviation,
                mul(sub(normal_cdf(t), lo), 1 / (hi - lo)));
    const DistTensor b = bernoulli(full(n, 0.3, m, "S0", DType::kF32), kSource);
    EXPECT_NEAR(sum(cast(b, DType::kF64)).item() / 1e7, 0.3,
                5 * std::sqrt(0.21 / 1e7));
  });
}

TEST(DistributionsTest, Orthogonal) {
  for (const Shape& shape : {Shape{5, 5}, Shape{7, 4}, Shape{4, 3, 3}}) {
    const Array q = check_everywhere(
        [&](const Mesh& m, const Placements& p) {
          return orthogonal(shape, m, p, DType::kF64, kSource, 2);
        },
        true);
    const int64_t rows = shape[0], columns = numel(shape) / rows;
    const bool wide = rows < columns;
    const int64_t n = wide ? rows : columns, m = wide ? columns : rows;
    const auto at = [&](int64_t vector, int64_t i) {
      return wide ? q.at(vector * m + i) : q.at(i * n + vector);
    };
    for (int64_t a = 0; a < n; ++a)
      for (int64_t b = 0; b < n; ++b) {
        double product = 0;
        for (int64_t i = 0; i < m; ++i) product += at(a, i) * at(b, i);
        EXPECT_NEAR(product, a == b ? 4 : 0, 1e-12);
      }
  }
}

// Householder's reflection of a column has one sign, whatever the column; each
// sign of a uniformly distributed factor is as likely.
TEST(DistributionsTest, OrthogonalFactorsHaveBothSigns) {
  on_mesh("x=2", [](const Mesh& m) {
    int positive = 0;
    for (uint64_t stream = 0; stream < 100; ++stream)
      positive +=
          orthogonal({3, 1}, m, {}, DType::kF64, {7, stream}).full().at(0) > 0;
    EXPECT_NEAR(positive, 50, 25);
  });
}

// Each element of the result has a number of its own, even if the mean or the
// deviation is one number for several.
TEST(DistributionsTest, NormalNumbersAreDrawnForEachElement) {
  on_mesh("x=2", [](const Mesh& m) {
    const DistTensor row = zeros({1, 50}, m, {}, DType::kF64),
                     column = ones({20, 1}, m, "S0", DType::kF64);
    for (const DistTensor& x :
         {normal(row, column, kSource), normal(column, row + 1, kSource)}) {
      std::vector<double> v = array_of(x.full()).v;
      std::sort(v.begin(), v.end());
      EXPECT_EQ(std::unique(v.begin(), v.end()) - v.begin(), 1000);
    }
  });
}

// A uniform number of a half type is a multiple of 1/256 or of 1/2048.
TEST(DistributionsTest, SmallProbabilitiesInHalves) {
  on_mesh("x=2", [](const Mesh& m) {
    for (const DType t : {DType::kBF16, DType::kF16}) {
      const double p = std::ldexp(1.0, -14), n = 4'000'000;
      const DistTensor b = bernoulli(full({4'000'000}, p, m, "S0", t), kSource);
      EXPECT_NEAR(sum(cast(b, DType::kF64)).item(), n * p, 5 * std::sqrt(n * p))
          << name(t);
    }
  });
}

TEST(DistributionsTest, Dropout) {
  on_mesh("x=2", [](const Mesh& m) {
    // Whole channels are kept or dropped.
    const DistTensor x = ones({40, 5, 3, 2}, m, "S0").set_requires_grad();
    const DistTensor y = dropout2d(x, 0.4, kSource);
    const Array a = array_of(y.full());
    int kept = 0;
    for (int64_t i = 0; i < 200; ++i) {
      for (int64_t j = 0; j < 6; ++j) EXPECT_EQ(a.at(6 * i + j), a.at(6 * i));
      kept += a.at(6 * i) != 0;
    }
    EXPECT_NEAR(kept, 120, 35);
    expect_near(array_of(grad(sum(y), {x})[0].full()), a, 1e-6, "gradient");
    EXPECT_EQ(dropout3d(ones({2, 3, 4, 5}, m), 1, kSource).full().at(0), 0);
    const Array line =
        array_of(dropout1d(ones({40, 3}, m), 0.4, kSource).full());
    for (int64_t i = 0; i < 120; ++i) EXPECT_EQ(line.at(i), line.at(i / 3 * 3));
    // No rank needs numbers of another one, even if space is split.
    const DistTensor rows = ones({2, 3, 8, 2}, m, "S2");
    RankContext::current().record = true;
    dropout2d(rows, 0.4, kSource);
    EXPECT_TRUE(RankContext::current().events.empty());
    RankContext::current().record = false;
    // The mean and the variance stay 0 and 1.
    const DistTensor z = randn({1'000'000}, m, "S0", DType::kF64, {1});
    const DistTensor w = alpha_dropout(z, 0.3, kSource);
    EXPECT_NEAR(mean(w).item(), 0, 0.01);
    EXPECT_NEAR(mean(square(w)).item(), 1, 0.01);
  });
}

TEST(DistributionsTest, Errors) {
  EXPECT_EQ(error_of(1, [](const Mesh& m) { randperm(-1, m); }),
            "[randperm] n is -1; write 0 or more");
  EXPECT_EQ(error_of(1,
                     [](const Mesh& m) {
                       exponential({2}, m, {}, DType::kF32, kSource, 0);
                     }),
            "[exponential] the rate is 0; write a number above 0");
  EXPECT_EQ(
      error_of(1,
               [](const Mesh& m) {
                 trunc_normal({2}, m, {}, DType::kF32, kSource, 0, 1, 2, 2);
               }),
      "[trunc_normal] std is 1 and the range is [2, 2]; write a std above 0 "
      "and lo < hi");
  EXPECT_EQ(error_of(1, [](const Mesh& m) { alpha_dropout(ones({2}, m), 1); }),
            "[alpha_dropout] p is 1; write a probability in [0, 1)");
}

}  // namespace
}  // namespace dtensor::testing
