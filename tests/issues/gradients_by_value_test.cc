// SPDX-License-Identifier: Apache-2.0
// Gradients by value where they were compared in f64 alone: a factor that only
// f32 or a half had, an input that wants none, a sum over many indices.
#include <gtest/gtest.h>

#include <cmath>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/hash.h"
#include "dtensor/runtime.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

// Values that bf16 has exactly.
DistTensor values(const SampleInput& in, DType t, const Mesh& mesh,
                  uint64_t seed) {
  std::vector<double> v(static_cast<size_t>(numel(in.shape)));
  for (size_t i = 0; i < v.size(); ++i) {
    const auto r = static_cast<int64_t>(hash_mix(seed, i) >> 8);
    switch (in.values) {
      case SampleInput::Values::kAny:
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
  }
  const Tensor wide = Tensor::from(in.shape, v.data());
  return cast(DistTensor::from_global(wide, mesh, {}), t);
}

// The gradients of output 0; none when the operator has none.
std::vector<std::vector<double>> gradients(const Op& op, const Sample& sample,
                                           DType t, const Mesh& mesh) {
  std::vector<DistTensor> in, wanted;
  for (size_t i = 0; i < sample.inputs.size(); ++i) {
    DistTensor x = values(sample.inputs[i], t, mesh, i + 1).detach();
    if (is_float(x.dtype())) wanted.push_back(x.set_requires_grad());
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
          // nextafter has no values in halves.
          if (op->name() == "nextafter" && is_half_float(t)) continue;
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
    // Each index walks x and y in opposite orders: one is k, five are batches,
    // of which the kernel takes four.
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
    // The cotangent of a partial is whole, and so is that of its operand: what
    // passed forward does not pass back.
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
}  // namespace dtensor
