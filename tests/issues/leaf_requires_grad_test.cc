// SPDX-License-Identifier: Apache-2.0
// Asking a fresh tensor for its gradient looked up the operator that made it,
// of which there is none, for an error message that was not needed.
#include <gtest/gtest.h>

#include "dtensor/ops/create.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/placement/error.h"
#include "dtensor/runtime.h"

namespace dtensor {
namespace {

TEST(LeafRequiresGrad, OfATensorThatNoOperatorMade) {
  run(1, [&](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"a", 1}});
    DistTensor x = ones({2}, mesh);
    EXPECT_TRUE(x.set_requires_grad().requires_grad());
    DistTensor y = exp(x);
    EXPECT_THROW(y.set_requires_grad(), Error);
    DistTensor ids = ones({2}, mesh, {}, DType::kI64);
    EXPECT_THROW(ids.set_requires_grad(), Error);
  });
}

}  // namespace
}  // namespace dtensor
