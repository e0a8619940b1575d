// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "dtensor/dtensor.h"
#include "dtensor/nn/more_layers.h"
#include "tests/nn/on_mesh.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

using testing::error_of;

// sin(0.7 i + shift), for element i.
DistTensor sines(const Shape& shape, double shift, const Mesh& m,
                 const Placements& p = {}) {
  std::vector<double> v(static_cast<size_t>(numel(shape)));
  for (size_t i = 0; i < v.size(); ++i)
    v[i] = std::sin(0.7 * static_cast<double>(i) + shift);
  return DistTensor::from_global(Tensor::from(shape, v.data()), m, p);
}
void expect_near(const std::vector<double>& found,
                 const std::vector<double>& want) {
  ASSERT_EQ(found.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(found[i], want[i], 1e-12) << i;
}

// torch 2.15: nn.Conv2d(4, 6, (3, 2), stride=2, padding=1, groups=2).
TEST(Conv2d, IsTorchsOnAllMeshes) {
  struct Case {
    const char *mesh, *weight, *bias, *x;
  };
  for (const Case& c : std::vector<Case>{{"tp=1", "R", "R", "R"},
                                         {"tp=2", "S0", "S0", "R"},
                                         {"tp=3", "S1", "R", "S2"},
                                         {"dp=2", "R", "R", "S0"},
                                         {"dp=2,tp=2", "R,S0", "R,S0", "S0,R"},
                                         {"dp=2,tp=3", "R,R", "S0,R", "S0,S3"}})
    on_mesh<int>(c.mesh, [&](const Mesh& m) {
      const Scope at{.mesh = m,
                     .plan = std::make_shared<ParallelPlan>(
                         ParallelPlan{{"weight", c.weight}, {"bias", c.bias}}),
                     .dtype = DType::kF64};
      const Conv2d conv(at, 4, 6, {3, 2},
                        {.stride = 2, .padding = 1, .groups = 2});
      assign(conv.parameter("weight"), sines({6, 2, 3, 2}, 1, m));
      assign(conv.parameter("bias"), sines({6}, 2, m));
      const DistTensor y = conv.forward(sines({2, 4, 5, 4}, 0, m, c.x));
      EXPECT_EQ(y.shape(), (Shape{2, 6, 3, 3})) << c.mesh;
      expect_near(values(y.sum()), {-25.81652865543716});
      expect_near(
          values(y[{1, 4, 2}]),
          {-1.4634261489180322, -1.1181519219776566, -0.7920544665882312});
      const auto grads = grad(sum(square(y)), conv.parameters());
      expect_near(
          values(grads[0][{5, 1}]),
          {-1.9823752755090798, 1.1604246511322618, 2.520762151194048,
           -2.5384615732182234, -2.6697851482536454, 0.7681725023951231});
      expect_near(values(grads[1]), {48.047961222056045, 20.23016154336276,
                                     -29.544106608300726, -42.79683435463138,
                                     -44.99372347170895, -2.5765156416520627});
      return 0;
    });
}

TEST(Conv2d, BeginsAsInTorch) {
  const auto begin = [](const char* mesh, const char* layout, DType type) {
    return on_mesh<std::vector<double>>(mesh, [&](const Mesh& m) {
      const Conv2d conv(Scope{.mesh = m,
                              .plan = std::make_shared<ParallelPlan>(
                                  ParallelPlan{{"weight", layout}}),
                              .dtype = type},
                        16, 64, 3, {.groups = 2});
      EXPECT_EQ(conv.parameter("weight").shape(), (Shape{64, 8, 3, 3}));
      std::vector<double> all = values(conv.parameter("weight"));
      const std::vector<double> bias = values(conv.parameter("bias"));
      all.insert(all.end(), bias.begin(), bias.end());
      return all;
    });
  };
  const std::vector<double> one = begin("tp=1", "R", DType::kF32);
  double squares = 0;
  for (double v : one) {
    EXPECT_LE(std::abs(v), 1 / std::sqrt(16 / 2 * 3 * 3));
    squares += v * v;
  }
  // The variance of numbers that are uniform in [-b, b] is b^2 / 3.
  EXPECT_NEAR(squares / static_cast<double>(one.size()) * 72 * 3, 1, 0.05);
  EXPECT_EQ(begin("tp=3", "S0", DType::kF32), one);
  EXPECT_EQ(begin("tp=2", "S1", DType::kF64), one);
}

TEST(Conv2d, RefusesSizes) {
  on_mesh<int>("tp=1", [](const Mesh& m) {
    EXPECT_EQ(error_of([&] { Conv2d(Scope(m), 4, 6, 3, {.groups = 4}); }),
              "[conv2d] the module has 4 channels in, 6 out, 4 groups and a "
              "kernel of [3]; write numbers above 0, groups that divide the "
              "channels, and one or two numbers for the kernel");
    EXPECT_NE(error_of([&] {
                Conv2d(Scope(m), 4, 6, {3, 3, 3});
              }).find("kernel of [3, 3, 3]"),
              std::string::npos);
    EXPECT_EQ(Conv2d(Scope(m), 4, 6, 3, {}, false).parameters().size(), 1);
    return 0;
  });
}

}  // namespace
}  // namespace dtensor::nn
