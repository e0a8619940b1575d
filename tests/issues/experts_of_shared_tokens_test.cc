// SPDX-License-Identifier: Apache-2.0
// The gradient of experts() went by where the forward pass had sent the rows,
// also where several ranks have a token: the forward pass computes it on each
// of them, the gradient on one.
#include <gtest/gtest.h>

#include "dtensor/ops/create.h"
#include "dtensor/ops/experts.h"
#include "dtensor/ops/grad.h"
#include "dtensor/runtime.h"

namespace dtensor {
namespace {

// The gradients' values, when the tokens lie so and the experts are whole.
std::vector<std::vector<double>> gradients(const Mesh& mesh,
                                           const std::string& tokens) {
  const auto random = [&](const Shape& shape, uint64_t n,
                          const std::string& layout) {
    return randn(shape, mesh, parse_layout(layout, mesh, shape), DType::kF64,
                 {5, n})
        .set_requires_grad();
  };
  const int64_t numbers[] = {0, 1, 3, 2, 2, 0, 1, 0, 3, 1};
  const DistTensor ids =
      DistTensor::from_global(Tensor::from({5, 2}, numbers), mesh, "R");
  const std::vector<DistTensor> in{
      random({5, 3}, 0, tokens), random({5, 2}, 1, "R"),
      random({4, 6, 3}, 2, "R"), random({4, 6, 3}, 3, "R"),
      random({4, 3, 6}, 4, "R")};
  GradOptions options;
  options.cotangent = randn({5, 3}, mesh, {}, DType::kF64, {5, 9});
  const DistTensor y = experts(in[0], ids, in[1], in[2], in[3], in[4]);
  std::vector<std::vector<double>> all;
  for (const DistTensor& g : grad(y, in, options)) {
    const Tensor whole = g.full();
    all.push_back(whole.reshape({whole.numel()}).to_doubles());
  }
  return all;
}

TEST(ExpertsOfSharedTokens, GradientsAreThoseOfWholeTokens) {
  run(3, [](Runtime&) {
    const Mesh mesh = Mesh::parse("a=3");
    const auto want = gradients(mesh, "R");
    // The first token is somebody's, the others everybody's; and others.
    for (const char* tokens : {"S0(a=1|4:a)", "S0(a=4|1:a)", "S0"}) {
      const auto got = gradients(mesh, tokens);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i)
        for (size_t k = 0; k < got[i].size(); ++k)
          EXPECT_NEAR(got[i][k], want[i][k], 1e-12)
              << tokens << ", gradient " << i << ", element " << k;
    }
  });
}

}  // namespace
}  // namespace dtensor
