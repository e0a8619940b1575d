// SPDX-License-Identifier: Apache-2.0
// The type of a given cotangent was not looked at: kernels read its memory as
// the output's type.
#include <gtest/gtest.h>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/placement/error.h"
#include "dtensor/runtime.h"

namespace dtensor {
namespace {

TEST(CotangentType, IsConvertedToTheOutputs) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    DistTensor x = arange(4, m, "S0", DType::kF32).set_requires_grad();
    for (DType t : {DType::kBF16, DType::kF16, DType::kF64, DType::kF32})
      for (const char* layout : {"R", "S0", "P"})
        EXPECT_EQ(grad(relu(x), {x}, {.cotangent = ones({4}, m, layout, t)})[0]
                      .to_string(),
                  "f32[4](S0) [0, 1, 1, 1]")
            << name(t) << " " << layout;
    EXPECT_EQ(grad(sum(x), {x}, {.cotangent = ones({}, m, {}, DType::kF64)})[0]
                  .dtype(),
              DType::kF32);
    EXPECT_THROW(
        grad(relu(x), {x}, {.cotangent = ones({4}, m, {}, DType::kI64)}),
        Error);
  });
}

TEST(CotangentType, OfAnotherMeshIsRefused) {
  run(4, [&](Runtime&) {
    const Mesh m = Mesh::parse("a=4"), other = Mesh::parse("a=2,b=2");
    DistTensor x = arange(4, m, "S0", DType::kF32).set_requires_grad();
    EXPECT_THROW(grad(relu(x), {x}, {.cotangent = ones({4}, other)}), Error);
  });
}

}  // namespace
}  // namespace dtensor
