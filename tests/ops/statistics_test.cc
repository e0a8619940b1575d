// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/statistics.h"

#include <cmath>
#include <limits>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view.h"
#include "tests/ops/structured_testing.h"
#include "tests/testing.h"

namespace dtensor::testing {
namespace {

// An empty row has no element other than 0, and none that is 0.
TEST(AnyAndAll, OfNothing) {
  on_mesh("x=2", [](const Mesh& mesh) {
    for (const char* layout : {"R", "S0", "S1"}) {
      const DistTensor none = zeros({0, 3}, mesh, layout);
      EXPECT_EQ(array_of(any(none, {0}).full()).v,
                (std::vector<double>{0, 0, 0}))
          << layout;
      EXPECT_EQ(array_of(all(none, {0}).full()).v,
                (std::vector<double>{1, 1, 1}))
          << layout;
      EXPECT_EQ(any(none).full().at(0), 0) << layout;
      EXPECT_EQ(all(none).full().at(0), 1) << layout;
    }
    const DistTensor x = put(integers({2, 2}, {0, 0, 0, 5}), mesh, "S0");
    EXPECT_EQ(array_of(any(x, {1}).full()).v, (std::vector<double>{0, 1}));
    EXPECT_EQ(array_of(all(x, {1}).full()).v, (std::vector<double>{0, 0}));
  });
}

// As in torch, a row is shifted by its maximum unless that is infinite.
TEST(LogSumExp, OfTheLargestNumbers) {
  constexpr double kInf = std::numeric_limits<double>::infinity(),
                   kMost = std::numeric_limits<float>::max();
  for (const char* layout : {"R", "S0", "S1"})
    on_mesh("x=2", [&](const Mesh& mesh) {
      const DistTensor wide = put(
          {{5, 2}, {1e300, 1e300, -1e300, -1e300, kInf, 1, -kInf, -kInf, 1, 1}},
          mesh, layout);
      EXPECT_EQ(
          array_of(logsumexp(wide, {1}).full()).v,
          (std::vector<double>{1e300, -1e300, kInf, -kInf, 1 + std::log(2.0)}))
          << layout;
      const DistTensor most =
          cast(put({{1, 2}, {kMost, kMost}}, mesh, layout), DType::kF32);
      EXPECT_EQ(logsumexp(most, {1}).full().at(0), kMost) << layout;
    });
}

TEST(Bincount, CountsAndWeights) {
  const Array x = integers({6}, {3, 1, 1, 5, 3, 1});
  for (const char* layout : {"R", "S0"})
    on_mesh("x=4", [&](const Mesh& mesh) {
      const DistTensor i = put(x, mesh, layout);
      EXPECT_EQ(bincount(i).full().to_integers(),
                (std::vector<int64_t>{0, 3, 0, 2, 0, 1}));
      const DistTensor w = put({{6}, {1, 2, 3, 4, 0.5, 0.25}}, mesh, layout);
      EXPECT_EQ(array_of(bincount(i, w, 7).full()).v,
                (std::vector<double>{0, 5.25, 0, 1.5, 0, 4, 0}));
      EXPECT_EQ(bincount(narrow(i, 0, 0, 0)).size(0), 0);
      // Types as in torch.
      const auto of = [&](DType t) { return bincount(i, cast(w, t)); };
      EXPECT_EQ(bincount(i, w).dtype(), DType::kF64);
      EXPECT_EQ(of(DType::kF32).dtype(), DType::kF32);
      for (const DType t : {DType::kI64, DType::kI32, DType::kBF16}) {
        EXPECT_EQ(of(t).dtype(), DType::kF64);
        EXPECT_EQ(array_of(of(t).full()).v[1], t == DType::kBF16 ? 5.25 : 5.0);
      }
      const DistTensor none =
          bincount(narrow(i, 0, 0, 0), narrow(w, 0, 0, 0), 3);
      EXPECT_EQ(none.dtype(), DType::kI64);
      EXPECT_EQ(none.full().to_integers(), (std::vector<int64_t>{0, 0, 0}));
    });
  EXPECT_EQ(error_of(2,
                     [](const Mesh& m) {
                       bincount(put(integers({2}, {1, -1}), m, "S0"));
                     }),
            "[index_add] index -1 is not in [0, 2), the indices of dimension 0 "
            "of the tensor; pass indices in that range");
  for (const int64_t n : {0, 2})
    EXPECT_EQ(error_of(2,
                       [&](const Mesh& m) {
                         bincount(zeros({n}, m, {}, DType::kI64), ones({3}, m));
                       })
                  .find("[bincount] weights f32[3](R) do not fit i64["),
              0u);
}

TEST(Masked, AMaskBroadcastsToItsTensor) {
  run(2, [](Runtime& rt) {
    const DistTensor x = ones({3}, rt.mesh());
    for (const auto& [shape, type] :
         std::vector<std::pair<Shape, DType>>{{{2, 3}, DType::kBool},
                                              {{3, 1}, DType::kBool},
                                              {{3}, DType::kF32}}) {
      const DistTensor mask = full(shape, 1, rt.mesh(), {}, type);
      const std::pair<const char*, std::function<void()>> calls[] = {
          {"masked_sum", [&] { masked_sum(x, mask); }},
          {"masked_mean", [&] { masked_mean(x, mask); }},
          {"masked_var", [&] { masked_var(x, mask); }},
          {"masked_amax", [&] { masked_amax(x, mask); }},
          {"masked_softmax", [&] { masked_softmax(x, mask, 0); }},
          {"masked_log_softmax", [&] { masked_log_softmax(x, mask, 0); }},
          {"masked_logsumexp", [&] { masked_logsumexp(x, mask); }}};
      for (const auto& [op, call] : calls)
        EXPECT_EQ(testing::error_of(call),
                  fmt::format("[{}] the mask {} does not fit f32[3](R); pass a "
                              "mask of bool that broadcasts to it",
                              op, mask.spec()->to_string()));
    }
  });
}

// x[i, j, k] = i + 10 j - k / 4 of [3, 2, 5], and the roots of the sums of its
// squares over the dimensions in `dims`, by plain loops.
Array blocks() {
  Array x{{3, 2, 5}, {}};
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 2; ++j)
      for (int k = 0; k < 5; ++k) x.v.push_back(i + 10 * j - k / 4.0);
  return x;
}
std::vector<double> norms_by_loops(const std::vector<int>& dims) {
  const Array x = blocks();
  const size_t sizes[] = {3, 2, 5};
  bool reduced[] = {dims.empty(), dims.empty(), dims.empty()};
  for (int d : dims) reduced[d] = true;
  size_t count = 1;
  for (int d = 0; d < 3; ++d) count *= reduced[d] ? 1 : sizes[d];
  std::vector<double> sums(count, 0);
  for (size_t e = 0; e < x.v.size(); ++e) {
    const size_t at[] = {e / 10, e / 5 % 2, e % 5};
    size_t place = 0;
    for (int d = 0; d < 3; ++d)
      if (!reduced[d]) place = place * sizes[d] + at[d];
    sums[place] += x.v[e] * x.v[e];
  }
  for (double& s : sums) s = std::sqrt(s);
  return sums;
}

// Over the last dimensions the squares are summed up as they are computed, and
// over others they are stored.
TEST(VectorNorm, OverAnyDimensions) {
  on_mesh("x=2,y=2", [](const Mesh& mesh) {
    for (const char* layout : {"R,R", "S0,S2", "S2,S2", "S1,R"})
      for (const std::vector<int>& dims : std::vector<std::vector<int>>{
               {}, {2}, {1, 2}, {2, 1}, {0}, {1}, {0, 2}, {0, 1, 2}})
        for (const DType type : {DType::kF64, DType::kF32, DType::kBF16}) {
          const DistTensor x = cast(put(blocks(), mesh, layout), type);
          const DistTensor norm = vector_norm(x, 2, dims);
          EXPECT_EQ(norm.dtype(), type);
          const std::vector<double> got = norm.full().to_doubles(),
                                    want = norms_by_loops(dims);
          ASSERT_EQ(got.size(), want.size());
          const double each = type == DType::kF64   ? 1e-14
                              : type == DType::kF32 ? 1e-6
                                                    : 2e-2;
          for (size_t i = 0; i < want.size(); ++i)
            EXPECT_NEAR(got[i], want[i], each * (1 + want[i])) << layout;
          EXPECT_EQ(vector_norm(x, 2, dims, true).ndim(), 3);
        }
    EXPECT_EQ(vector_norm(zeros({2, 0}, mesh)).full().item(), 0);
    EXPECT_EQ(vector_norm(full({}, -3, mesh)).full().item(), 3);
    // Partial values are added before they are squared.
    const DistTensor twos = sum(ones({2, 4}, mesh, "S0,R"), {0});
    ASSERT_NE(twos.spec()->partial_axes(), 0u);
    EXPECT_EQ(vector_norm(twos).full().item(), 4);
  });
}

// Many f32 squares are not summed up one after the other in f32.
TEST(VectorNorm, OfLongRowsIsAccurate) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const double each = static_cast<double>(1.1f);
    for (const int64_t rows : {1, 40}) {
      const int64_t n = (1 << 22) / rows;
      const DistTensor norm =
          vector_norm(full({rows, n}, each, mesh, "R", DType::kF32), 2, {1});
      const double want = each * std::sqrt(static_cast<double>(n));
      for (const double got : norm.full().to_doubles())
        EXPECT_NEAR(got, want, 1e-6 * want) << rows;
    }
  });
}

// torch's gradient is sign(x) |x|^(p-1) norm^(1-p), and 0 where x is 0. Guards
// a fix: it was NaN there.
TEST(VectorNorm, OfAPowerBelowOneHasAGradientAtZero) {
  on_mesh("x=2", [](const Mesh& mesh) {
    DistTensor x = put({{3, 2}, {0, -4, 0, 0, 1, 4}}, mesh, "S1");
    x.set_requires_grad();
    const auto gradient = [&](double p) {
      return grad(sum(vector_norm(x, p, {1})), {x})[0].full().to_doubles();
    };
    EXPECT_EQ(array_of(vector_norm(x, 0.5, {1}).full()).v,
              (std::vector<double>{4, 0, 9}));
    EXPECT_EQ(gradient(0.5), (std::vector<double>{0, -1, 0, 0, 3, 1.5}));
    EXPECT_EQ(array_of(vector_norm(x, -1, {1}).full()).v,
              (std::vector<double>{0, 0, 0.8}));
    const std::vector<double> inverse = gradient(-1);
    for (const size_t i : {0, 1, 2, 3}) EXPECT_EQ(inverse[i], 0) << i;
    EXPECT_NEAR(inverse[4], 0.64, 1e-14);
    EXPECT_NEAR(inverse[5], 0.04, 1e-14);
  });
}

// As in torch, the norm of zeros has the gradient 0. A sum of negative powers
// is 0 for infinities, whose norm is infinite.
TEST(VectorNorm, OfRowsWhoseSumIsZero) {
  on_mesh("x=2", [](const Mesh& mesh) {
    for (const char* layout : {"R", "S0", "S1"}) {
      DistTensor x = put({{2, 2}, {0, 0, 3, 4}}, mesh, layout);
      x.set_requires_grad();
      const DistTensor norm = vector_norm(x, 2, {1});
      expect_near(array_of(norm.full()), {{2}, {0, 5}}, 1e-15, layout);
      expect_near(array_of(grad(sum(norm), {x})[0].full()),
                  {{2, 2}, {0, 0, 0.6, 0.8}}, 1e-15, layout);
      constexpr double kInf = std::numeric_limits<double>::infinity();
      const DistTensor inf = put({{2, 2}, {kInf, -kInf, 3, 4}}, mesh, layout);
      EXPECT_EQ(vector_norm(inf, -1, {1}).full().at(0), kInf) << layout;
    }
  });
}

// With fewer elements than the correction, torch divides by 0.
TEST(Variance, OfFewerElementsThanTheCorrection) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const DistTensor v = put({{2}, {1, 2}}, mesh, "S0");
    EXPECT_EQ(var(v, {}, 3).item(), std::numeric_limits<double>::infinity());
    EXPECT_TRUE(std::isnan(var(put({{2}, {1, 1}}, mesh), {}, 3).item()));
  });
}

// The gradient of the norm of (3, 4) is (3/5, 4/5), and that of the sum of
// these is ((16 - 12) / 125, (9 - 12) / 125).
TEST(VectorNorm, HasBothDerivatives) {
  on_mesh("x=2", [](const Mesh& mesh) {
    DistTensor x = put({{1, 2}, {3, 4}}, mesh, "S1");
    x.set_requires_grad();
    const DistTensor dx =
        grad(sum(vector_norm(x, 2, {1})), {x}, {.create_graph = true})[0];
    const DistTensor ddx = grad(sum(dx), {x})[0];
    const std::vector<double> first = dx.full().to_doubles(),
                              second = ddx.full().to_doubles();
    EXPECT_NEAR(first[0], 0.6, 1e-14);
    EXPECT_NEAR(first[1], 0.8, 1e-14);
    EXPECT_NEAR(second[0], 4.0 / 125, 1e-14);
    EXPECT_NEAR(second[1], -3.0 / 125, 1e-14);
  });
}

}  // namespace
}  // namespace dtensor::testing
