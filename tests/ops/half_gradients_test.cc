// SPDX-License-Identifier: Apache-2.0
// Gradients in bf16 and f16 by value, against formulas in f64: the other tests
// compare gradients in f64 alone.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "dtensor/autograd.h"
#include "dtensor/ops/losses.h"
#include "dtensor/ops/norm.h"
#include "tests/ops/structured_testing.h"

namespace dtensor::testing {
namespace {

class HalfGradients : public ::testing::TestWithParam<DType> {};

// Within what the type rounds to, a few times, on the scale of the largest.
void expect_gradient(const DistTensor& got, DType t, const Array& want,
                     const std::string& what) {
  ASSERT_EQ(name(got.dtype()), name(t));
  const double error = t == DType::kBF16 ? 0.01 : 0.01 / 8;
  const Array a = array_of(got.full());
  double largest = 0;
  for (double w : want.v) largest = std::max(largest, std::abs(w));
  for (int64_t i = 0; i < numel(want.shape); ++i)
    EXPECT_NEAR(a.at(i), want.at(i),
                error * (std::abs(want.at(i)) + largest / 2))
        << what << ", element " << i;
}

// Numbers that both have.
Array coarse(const Shape& shape, int seed) {
  Array a = values(shape, seed, 2);
  for (double& v : a.v) v = std::round(16 * v) / 16;
  return a;
}

TEST_P(HalfGradients, CrossEntropy) {
  const int64_t rows = 6, classes = 5;
  const Array x = coarse({rows, classes}, 1);
  const Array targets = integers({rows}, {4, 0, -100, 2, 2, 1});
  Array want = zeros_like(x.shape);
  for (int64_t r = 0; r < rows; ++r) {
    if (targets.at(r) < 0) continue;
    double total = 0;
    for (int64_t c = 0; c < classes; ++c)
      total += std::exp(x.at(r * classes + c));
    for (int64_t c = 0; c < classes; ++c)
      want.at(r * classes + c) = (std::exp(x.at(r * classes + c)) / total -
                                  (c == static_cast<int64_t>(targets.at(r)))) /
                                 5;  // five rows count
  }
  for (const char* layout : {"R", "S0", "S1"})
    on_mesh("x=2", [&](const Mesh& mesh) {
      DistTensor logits = put(x, mesh, layout, GetParam()).set_requires_grad();
      const DistTensor loss = cross_entropy(logits, put(targets, mesh));
      expect_gradient(grad(loss, {logits})[0], GetParam(), want, layout);
    });
}

TEST_P(HalfGradients, Norms) {
  const int64_t rows = 4, n = 6;
  const Array x = coarse({rows, n}, 2), gamma = coarse({n}, 3),
              beta = coarse({n}, 4), u = coarse({rows, n}, 5),
              v = coarse({rows, n}, 6);
  const double eps = 1e-5;
  for (bool centred : {true, false}) {
    Array dx = zeros_like(x.shape), dgamma = zeros_like({n}), dbeta = dgamma;
    for (int64_t r = 0; r < rows; ++r) {
      double mean = 0, square = 0;
      for (int64_t i = 0; centred && i < n; ++i) mean += x.at(r * n + i) / n;
      for (int64_t i = 0; i < n; ++i)
        square += std::pow(x.at(r * n + i) - mean, 2) / n;
      const double scale = 1 / std::sqrt(square + eps);
      double sum = 0, dot = 0;
      auto hat = [&](int64_t i) { return (x.at(r * n + i) - mean) * scale; };
      for (int64_t i = 0; i < n; ++i) {
        const double g = u.at(r * n + i) * gamma.at(i);
        sum += g / n;
        dot += g * hat(i) / n;
        dgamma.at(i) += u.at(r * n + i) * hat(i);
        dbeta.at(i) += u.at(r * n + i);
      }
      for (int64_t i = 0; i < n; ++i)
        dx.at(r * n + i) = scale * (u.at(r * n + i) * gamma.at(i) -
                                    (centred ? sum : 0) - hat(i) * dot);
    }
    for (const char* layout : {"R", "S0", "S1"})
      on_mesh("x=2", [&](const Mesh& mesh) {
        auto in = [&](const Array& a, const std::string& at) {
          return put(a, mesh, at, GetParam()).set_requires_grad();
        };
        const DistTensor a = in(x, layout), g = in(gamma, "R"),
                         b = in(beta, "R");
        const DistTensor y =
            centred ? layer_norm(a, g, b, eps) : rms_norm(a, g, eps);
        const auto got =
            grad(y, {a, g, b}, {.cotangent = put(u, mesh, "R", GetParam())});
        const std::string what =
            std::string(centred ? "layer_norm " : "rms_norm ") + layout;
        expect_gradient(got[0], GetParam(), dx, what + " x");
        expect_gradient(got[1], GetParam(), dgamma, what + " gamma");
        if (centred) expect_gradient(got[2], GetParam(), dbeta, what + " beta");

        // Of a sum that has a cotangent of its own.
        const DistTensor zero = in(zeros_like(x.shape), layout);
        const Normed out = centred ? add_layer_norm(a, zero, g, b, eps)
                                   : add_rms_norm(a, zero, g, eps);
        Array dsum = dx;
        for (int64_t i = 0; i < rows * n; ++i) dsum.at(i) += v.at(i);
        const auto of_sum = backward_pass(
            std::vector{out.y, out.x},
            std::vector{put(u, mesh, "R", GetParam()),
                        put(v, mesh, "R", GetParam())},
            std::vector{a, zero, g}, {},
            [](const DistTensor& s, const DistTensor& t) { return s + t; });
        expect_gradient(of_sum[0], GetParam(), dsum, "add_" + what + " a");
        expect_gradient(of_sum[1], GetParam(), dsum, "add_" + what + " b");
        expect_gradient(of_sum[2], GetParam(), dgamma,
                        "add_" + what + " gamma");
      });
  }
}

INSTANTIATE_TEST_SUITE_P(Types, HalfGradients,
                         ::testing::Values(DType::kBF16, DType::kF16),
                         [](const auto& info) {
                           return std::string(name(info.param));
                         });

}  // namespace
}  // namespace dtensor::testing
