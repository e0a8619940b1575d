// SPDX-License-Identifier: Apache-2.0
// Compares gradients in bf16 and f16 with formulas in f64. The other tests
// compare gradients in f64 only.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "dtensor/autograd.h"
#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/losses.h"
#include "dtensor/ops/norm.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/hash.h"
#include "dtensor/runtime.h"
#include "tests/ops/structured_testing.h"
#include "tests/testing.h"

namespace dtensor::testing {
namespace {

class HalfGradients : public ::testing::TestWithParam<DType> {};

// The error may be a few roundings of the type, at the scale of this element
// and of the largest one.
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

// Numbers that both types represent exactly.
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

        // The sum, which is the second output, has a cotangent of its own.
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

// Compares the gradients of all operators in f32 and halves with those in f64.
// Cases that were wrong: a factor that only f32 or a half had, an input that
// requires none, a sum over many indices.

// Values that bf16 represents exactly.
DistTensor values(const SampleInput& in, DType t, const Mesh& mesh,
                  uint64_t seed) {
  std::vector<double> v(static_cast<size_t>(numel(in.shape)));
  for (size_t i = 0; i < v.size(); ++i) {
    const auto r = static_cast<int64_t>(hash_mix(seed, i) >> 8);
    switch (in.values) {
      case SampleInput::Values::kAny:
      case SampleInput::Values::kConstant:
        v[i] = static_cast<double>(r % 31 - 15) / 8 + 1.0 / 16;
        // Within a function's domain, exact in bf16, and not at its ends, where
        // a slope may be steep.
        if (in.lo != -2 || in.hi != 3)
          v[i] =
              std::round((in.lo +
                          (in.hi - in.lo) *
                              (0.15 + 0.7 * static_cast<double>(r % 31) / 30)) *
                         64) /
              64;
        break;
      case SampleInput::Values::kPositive:
        v[i] = static_cast<double>(r % 15 + 2) / 8;
        break;
      case SampleInput::Values::kIndex:
        t = DType::kI64, v[i] = static_cast<double>(r % in.bound);
        break;
      case SampleInput::Values::kBool:
        t = DType::kBool, v[i] = static_cast<double>(r % 2);
        break;
      case SampleInput::Values::kInt8:
        t = DType::kI8, v[i] = static_cast<double>(r % 255 - 127);
        break;
    }
    if (in.dominant) {
      const auto n = static_cast<size_t>(in.shape.back());
      if (i / n % n == i % n) v[i] += 10;
    }
  }
  const Tensor wide = Tensor::from(in.shape, v.data());
  return cast(DistTensor::from_global(wide, mesh, {}), t);
}

// nextafter and the factors of matrices have no values in halves.
bool has_halves(const Op& op) {
  for (const char* family :
       {"linalg", "linalg_orthogonal", "linalg_triangular", "matrix_functions"})
    for (const Op* wide : op_family(family))
      if (wide == &op) return false;
  return op.name() != "nextafter" && op.name() != "embedding_bag";
}

// The gradients of output 0; empty if the operator has none.
std::vector<std::vector<double>> gradients(const Op& op, const Sample& sample,
                                           DType t, const Mesh& mesh) {
  std::vector<DistTensor> in, wanted;
  for (size_t i = 0; i < sample.inputs.size(); ++i) {
    DistTensor x = values(sample.inputs[i], t, mesh, i + 1).detach();
    if (is_float(x.dtype()) &&
        sample.inputs[i].values != SampleInput::Values::kConstant)
      wanted.push_back(x.set_requires_grad());
    in.push_back(x);
  }
  std::vector<std::vector<double>> all;
  const DistTensor y = apply(op, in, sample.attrs)[0];
  if (!y.requires_grad()) return all;
  GradOptions options;
  options.cotangent = values({y.shape()}, y.dtype(), mesh, 77);
  for (const DistTensor& g : grad(y, wanted, options))
    all.push_back(g.local().to_doubles());
  return all;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return size == 0 ? std::sqrt(difference) : std::sqrt(difference / size);
}

TEST(GradientsByValue, InF32AndHalves) {
  int compared = 0;
  run(1, [&](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"x", 1}});
    for (const Op* op : all_ops()) {
      if (!op->facts().differentiable) continue;
      for (const Sample& sample : op->samples()) {
        std::vector<std::vector<double>> reference;
        try {
          reference = gradients(*op, sample, DType::kF64, mesh);
        } catch (const Error&) {
          continue;  // no gradient of these inputs
        }
        for (const auto& [t, tolerance] :
             {std::pair(DType::kF32, 1e-3), std::pair(DType::kBF16, 0.04),
              std::pair(DType::kF16, 0.005)}) {
          if (is_half_float(t) && !has_halves(*op)) continue;
          const auto got = gradients(*op, sample, t, mesh);
          ASSERT_EQ(got.size(), reference.size()) << op->name();
          for (size_t i = 0; i < got.size(); ++i) {
            EXPECT_LE(distance(got[i], reference[i]), tolerance)
                << op->name() << " with " << sample.attrs.to_string() << " in "
                << name(t) << ", input " << i;
            ++compared;
          }
        }
      }
    }
  });
  EXPECT_GT(compared, 200);
}

TEST(GradientsByValue, OfACatWhoseFirstInputWantsNone) {
  run(1, [](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"x", 1}});
    const double from[] = {1, 2, 3, 4, 5, 6};
    const DistTensor a =
        DistTensor::from_global(Tensor::from(Shape{2}, from), mesh, {});
    DistTensor b =
        DistTensor::from_global(Tensor::from(Shape{4}, from), mesh, {});
    b.set_requires_grad();
    GradOptions options;
    options.cotangent =
        DistTensor::from_global(Tensor::from(Shape{6}, from), mesh, {});
    const DistTensor g = grad(cat({a, b}, 0), {b}, options)[0];
    for (int64_t i = 0; i < 4; ++i)
      EXPECT_EQ(g.local().at(i), static_cast<double>(i + 3));
  });
}

TEST(GradientsByValue, OfSixIndicesThatCannotJoin) {
  run(1, [](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"x", 1}});
    const Shape shape = Shape::filled(6, 2);
    DistTensor x = values({shape}, DType::kF64, mesh, 1);
    const DistTensor y = values({shape}, DType::kF64, mesh, 2);
    // x and y have the indices in opposite orders. One index is k; five are
    // batches, of which the kernel takes only four.
    double expected = 0;
    for (int64_t i = 0; i < 64; ++i) {
      int64_t reversed = 0;
      for (int b = 0; b < 6; ++b) reversed |= (i >> b & 1) << (5 - b);
      expected += x.local().at(i) * y.local().at(reversed);
    }
    EXPECT_NEAR(einsum("abcdef,fedcba->", {x, y}).item(), expected, 1e-12);
  });
}

TEST(GradientsByValue, OfAPartialOperandSendNothing) {
  const Mesh mesh = Mesh::parse("tp=2");
  run(2, [&](Runtime& rt) {
    DistTensor x = values({{4, 6}}, DType::kF64, mesh, 1);
    const DistTensor w = values({{6, 3}}, DType::kF64, mesh, 2);
    x = x.redistribute("P").detach().set_requires_grad();
    const DistTensor y = matmul(x, w);
    EXPECT_EQ(y.layout().to_string(mesh), "P");
    GradOptions options;
    options.cotangent = values({{4, 3}}, DType::kF64, mesh, 3);
    rt.context().record = true;
    // The cotangent of a partial value is whole, and so is that of the partial
    // operand, though the value stayed partial in the forward pass.
    const DistTensor g = grad(y, {x}, options)[0];
    EXPECT_TRUE(rt.context().events.empty());
    EXPECT_EQ(g.layout().to_string(mesh), "R");
    rt.context().record = false;
    const Tensor c = options.cotangent.local(), ws = w.local();
    for (int64_t i = 0; i < 4; ++i)
      for (int64_t j = 0; j < 6; ++j) {
        double expected = 0;
        for (int64_t n = 0; n < 3; ++n)
          expected += c.at(i * 3 + n) * ws.at(j * 3 + n);
        EXPECT_NEAR(g.local().at(i * 6 + j), expected, 1e-12);
      }
  });
}

}  // namespace
}  // namespace dtensor::testing
