// SPDX-License-Identifier: Apache-2.0
// Numbers that pointwise functions got wrong: gradients at 0 and at NaN,
// divisions by a number, integers, types of tensors without dimensions, and
// partial sums whose parts lose the value.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/array.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
using Values = std::vector<double>;
using testing::error_of;
using testing::values;

template <class Fn>
void on_one_rank(Fn&& fn) {
  run(1, [&](Runtime&) { fn(Mesh::parse("1")); });
}
template <class T>
DistTensor tensor(const Mesh& mesh, const std::vector<T>& v) {
  return DistTensor::from_global(
      Tensor::from<T>({static_cast<int64_t>(v.size())}, v.data()), mesh, {});
}

TEST(PointwiseNumbers, PowersOfZeroHaveNoSlope) {
  on_one_rank([](const Mesh& m) {
    DistTensor a = tensor<double>(m, {0, 0, 2}),
               b = tensor<double>(m, {0, 2, 3});
    a.set_requires_grad(), b.set_requires_grad();
    const auto g = grad(sum(pow(a, b)), {a, b});
    EXPECT_EQ(values(g[0])[0], 0);
    EXPECT_EQ(values(g[0])[1], 0);
    EXPECT_NEAR(values(g[0])[2], 12, 1e-13);
    EXPECT_EQ(values(g[1])[0], 0);
    EXPECT_EQ(values(g[1])[1], 0);
    EXPECT_NEAR(values(g[1])[2], 8 * std::log(2), 1e-14);
  });
}

TEST(PointwiseNumbers, DivisionByANumberDivides) {
  on_one_rank([](const Mesh& m) {
    EXPECT_EQ((full({}, 49, m, {}, DType::kF64) / 49.0).item(), 1);
    EXPECT_EQ(mean(ones({49}, m, {}, DType::kF64)).item(), 1);
    EXPECT_EQ(mean(ones({41}, m)).item(), 1);
    EXPECT_EQ(floor(full({}, 147, m, {}, DType::kF64) / 49.0).item(), 3);
    EXPECT_EQ((1 / full({}, 49, m, {}, DType::kF64)).item(), 1.0 / 49);
  });
}

TEST(PointwiseNumbers, IntegersStayExact) {
  on_one_rank([](const Mesh& m) {
    const DistTensor i = tensor<int64_t>(m, {16777217, 5001, -7});
    const DistTensor cut = clamp(i, -0.5, 2.5);
    EXPECT_EQ(cut.dtype(), DType::kF32);
    EXPECT_EQ(values(cut), (Values{2.5, 2.5, -0.5}));
    EXPECT_EQ(clamp(i, -5, 6000).dtype(), DType::kI64);
    EXPECT_EQ(values(clamp(i, -5, 6000)), (Values{6000, 5001, -5}));
    EXPECT_EQ(pow(i, 2).dtype(), DType::kI64);
    EXPECT_EQ(values(pow(i, 2))[1], 25010001);
    EXPECT_EQ(values(unary("abs", i)), (Values{16777217, 5001, 7}));
    EXPECT_EQ(unary("abs", i).dtype(), DType::kI64);
    EXPECT_NE(error_of([&] { pow(i, -1); }).find("[pow]"), std::string::npos);
    const DistTensor s = sum(full({4}, 1 << 30, m, {}, DType::kI32));
    EXPECT_EQ(s.dtype(), DType::kI64);
    EXPECT_EQ(s.item(), 4294967296);
  });
}

TEST(PointwiseNumbers, ANumberKeepsOrRaisesTheKind) {
  on_one_rank([](const Mesh& m) {
    const DistTensor i = full({2}, 1, m, {}, DType::kI32);
    const DistTensor b = full({2}, 1, m, {}, DType::kBool);
    EXPECT_EQ(add(i, 1).dtype(), DType::kI32);
    EXPECT_EQ(add(i, 3e9).dtype(), DType::kF32);
    EXPECT_EQ(values(add(i, 3e9))[0], 3e9);
    EXPECT_NE(error_of([&] { add(i, int64_t{3000000000}); }).find("i32"),
              std::string::npos);
    EXPECT_EQ(mul(i, 2.0).dtype(), DType::kF32);
    EXPECT_EQ(add(b, 1).dtype(), DType::kI64);
    EXPECT_EQ(values(add(b, 1)), (Values{2, 2}));
    EXPECT_EQ(add(b, true).dtype(), DType::kBool);
    EXPECT_EQ(add(b, 0.5).dtype(), DType::kF32);
    EXPECT_EQ(add(b, b).dtype(), DType::kBool);
    EXPECT_EQ(values(add(b, b)), (Values{1, 1}));
    EXPECT_EQ(values(1 - tensor<double>(m, {3, kInf})), (Values{-2, -kInf}));
    EXPECT_EQ(values(add(tensor<double>(m, {1}), kInf)), (Values{kInf}));
    EXPECT_NE(error_of([&] { neg(b); }).find("[neg]"), std::string::npos);
  });
}

TEST(PointwiseNumbers, TensorsWithoutDimensionsDoNotWiden) {
  on_one_rank([](const Mesh& m) {
    const DistTensor half = ones({4}, m, {}, DType::kBF16);
    const DistTensor two = full({}, 2, m),
                     wide = full({}, 2, m, {}, DType::kF64);
    EXPECT_EQ(mul(half, two).dtype(), DType::kBF16);
    EXPECT_EQ(mul(wide, half).dtype(), DType::kBF16);
    EXPECT_EQ(where(ne(half, 0), half, wide).dtype(), DType::kBF16);
    EXPECT_EQ(mul(ones({4}, m, {}, DType::kI64), two).dtype(), DType::kF32);
    EXPECT_EQ(mul(two, wide).dtype(), DType::kF64);
    EXPECT_EQ(mul(half, ones({1}, m)).dtype(), DType::kF32);
  });
}

TEST(PointwiseNumbers, GradientsOfMaximum) {
  on_one_rank([](const Mesh& m) {
    DistTensor a = tensor<double>(m, {1, kNaN, 2, 5}),
               b = tensor<double>(m, {1, 3, kNaN, 4});
    a.set_requires_grad(), b.set_requires_grad();
    for (auto* f : {"maximum", "minimum"}) {
      const auto g = grad(sum(binary(f, a, b)), {a, b});
      const bool first = std::string(f) == "maximum";
      EXPECT_EQ(values(g[0]), (Values{0.5, 1, 1, first ? 1.0 : 0.0})) << f;
      EXPECT_EQ(values(g[1]), (Values{0.5, 1, 1, first ? 0.0 : 1.0})) << f;
    }
    const auto same = grad(sum(maximum(a, a)), {a});
    EXPECT_EQ(values(same[0]), (Values{1, 2, 1, 1}));
  });
}

// -2 as -3 + 1 and the like.
DistTensor partial(const Mesh& m, double mine, double other, DType t) {
  const bool first = RankContext::current().coordinate(m)[0] == 0;
  return DistTensor::wrap(Tensor::full({1}, t, first ? mine : other),
                          Spec::get(m, {1}, parse_layout("P", m, {1}), t));
}

TEST(PointwiseNumbers, PartialSumsSettleBeforeTheyAreLost) {
  const Mesh m = Mesh::parse("2");
  run(2, [&](Runtime&) {
    const DistTensor x = partial(m, -3, 1, DType::kF64);
    EXPECT_EQ(values(div(x, zeros({1}, m, {}, DType::kF64))), (Values{-kInf}));
    EXPECT_EQ(values(x / 0.0), (Values{-kInf}));
    EXPECT_EQ(values(x * kInf), (Values{-kInf}));
    EXPECT_TRUE(std::isnan(values(x * kNaN)[0]));
    EXPECT_EQ(values(x * 0.5), (Values{-1}));
    const DistTensor none = partial(m, 0, 0, DType::kF64);
    EXPECT_EQ(values(lerp(none, x, 0.25)), (Values{-0.5}));
    EXPECT_EQ(values(lerp(none, x, kInf)), (Values{-kInf}));
    EXPECT_EQ(values(lerp(none, x, -kInf)), (Values{kInf}));
    const DistTensor large = partial(m, 10001.25, -10000.75, DType::kF64);
    EXPECT_EQ(values(cast(large, DType::kBF16)), (Values{0.5}));
    EXPECT_EQ(values(cast(large, DType::kF16)), (Values{0.5}));
    EXPECT_EQ(values(cast(partial(m, 1e30, -1e30, DType::kF32), DType::kF64)),
              (Values{0}));
    const DistTensor whole = partial(m, 16777217, -16777216, DType::kI64);
    EXPECT_EQ(values(cast(whole, DType::kF32)), (Values{1}));
  });
}

}  // namespace
}  // namespace dtensor
