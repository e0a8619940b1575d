// SPDX-License-Identifier: Apache-2.0
// A move between meshes that sends nothing left the ranks outside of the first
// mesh without a part, or with one of another type, where the layout gives them
// nothing of the tensor.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtensor/ops/pointwise.h"
#include "dtensor/redistribute.h"
#include "dtensor/runtime.h"

namespace dtensor {
namespace {

// What every rank has of it fits the layout, and operators take it.
void check(const DistTensor& y, const std::vector<double>& values) {
  const std::string text = y.spec()->to_string();
  if (!y.here()) return;
  const Tensor& part = y.local();
  ASSERT_TRUE(part.defined()) << text;
  EXPECT_EQ(part.dtype(), y.dtype()) << text;
  EXPECT_EQ(part.shape(),
            y.spec()->local_shape(RankContext::current().coordinate(y.mesh())))
      << text;
  std::vector<double> twice;
  for (double v : values) twice.push_back(2 * v);
  EXPECT_EQ((y + y).full().to_doubles(), twice) << text;
}

TEST(PartsAfterMeshes, RanksThatComeAnew) {
  const Mesh all = Mesh::parse("a=4"), square = Mesh::parse("a=2,b=2");
  struct {
    const char* mesh;
    Shape shape;
    const Mesh* to;
    const char* layout;
  } cases[] = {
      {"b=2 of ranks 1,3", {1}, &all, "S0"},
      {"b=2 of ranks 0,1", {2}, &all, "[{a}@0|1|2|2|2]"},
      {"b=2 of ranks 0,1", {2, 3}, &all, "[{a}@0|1|2|2|2,{}]"},
      {"b=1 of ranks 2", {3, 2}, &all, "[{a}@0|0|0|3|3,{}]"},
      {"b=2 of ranks 0,2", {4}, &square, "[{a,b}@0|2|2|4|4]"},
      {"b=1 of ranks 3", {0, 5}, &all, "S0"},
      {"b=1 of ranks 3", {0, 5}, &all, "P"},
  };
  for (const DType type : {DType::kF64, DType::kI64, DType::kF32, DType::kI32})
    run(4, [&](Runtime& rt) {
      for (const auto& c : cases) {
        const Mesh few = Mesh::parse(c.mesh);
        std::vector<double> values(static_cast<size_t>(numel(c.shape)));
        for (size_t i = 0; i < values.size(); ++i)
          values[i] = static_cast<double>(i + 1);
        const DistTensor x = DistTensor::wrap(
            few.mesh_rank_of(rt.rank()) < 0
                ? Tensor()
                : converted(Tensor::from(c.shape, values.data()), type),
            Spec::replicated(few, c.shape, type));
        const DistTensor y = x.redistribute(*c.to, c.layout);
        check(y, values);
        DistTensor z = x;
        relayout({&z, 1}, std::vector<SpecRef>{y.spec()});
        check(z, values);
        check(x.redistribute_async(*c.to, c.layout), values);
        check(y.redistribute(few, "R"), values);
      }
    });
}

}  // namespace
}  // namespace dtensor
