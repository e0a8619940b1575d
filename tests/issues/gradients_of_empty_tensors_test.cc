// cat() dropped pieces of shape [0] together with their place in the graph, so
// that pad() of an empty tensor, which is made of it, had no gradient.
#include <gtest/gtest.h>

#include "dtensor/dtensor.h"

namespace dtensor {
namespace {

TEST(GradientsOfEmptyTensors, HaveTheShapeOfTheirTensor) {
  for (const char* layout : {"R", "S0"})
    run(2, [&](Runtime&) {
      const Mesh m = Mesh::parse("a=2");
      const auto empty = [&] {
        return zeros({0}, m, parse_layout(layout, m, {0}), DType::kF64)
            .set_requires_grad();
      };
      const DistTensor x = empty(), row = ones({2}, m, {}, DType::kF64),
                       matrix = ones({2, 3}, m, {}, DType::kF64);
      const std::pair<const char*, DistTensor> made[] = {
          {"pad", pad(x, {2, 0}, 1.5)},
          {"cat before", cat({x, row})},
          {"cat behind", cat({row, x})},
          {"cat of a matrix", cat({matrix, x}, 1)},
          {"cat of empty ones", cat({zeros({0}, m, {}, DType::kF64), x})},
          {"hstack", hstack({row, x})},
          {"stack", stack({x, x})},
          {"roll", roll(x, {1}, {0})},
          {"repeat", repeat(x, {3})},
          {"slice", slice(x, 0, 0, 0)},
          {"flatten", flatten(x)},
          {"exp", exp(x)},
          {"add", x + x},
          {"mean", sum(x)},
          {"cumsum", cumsum(x, 0)},
          {"softmax", softmax(x, 0)},
          {"outer", outer(row, x)},
          {"dot", dot(x, x)}};
      for (const auto& [name, y] : made) {
        ASSERT_TRUE(y.requires_grad()) << name << ", " << layout;
        const auto g = grad(sum(y), {x});
        EXPECT_EQ(g[0].shape(), Shape{0}) << name << ", " << layout;
      }
    });
}

}  // namespace
}  // namespace dtensor
