// SPDX-License-Identifier: Apache-2.0
// An operator whose gradient() returned fewer gradients than the operator has
// inputs made the backward pass read past the end of the list.
#include <gtest/gtest.h>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/op.h"
#include "dtensor/runtime.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

// The first of two tensors.
class First : public RuleOp {
 public:
  First() : RuleOp("first", "...,...->...", {.saved_inputs = 0}) {}
  void compute(Compute& c) const override { c.out[0].copy_from(c.in[0]); }
  InputGradients gradient(const GradientCall& g) const override {
    return {g.cotangents[0]};
  }
};

TEST(GradientsOfEachInput, AreCounted) {
  run(1, [&](Runtime& rt) {
    const First first;
    const Mesh mesh = rt.mesh({{"a", 1}});
    const auto x = ones({2}, mesh).set_requires_grad(),
               y = ones({2}, mesh).set_requires_grad();
    const DistTensor in[] = {x, y};
    EXPECT_EQ(testing::error_of([&] {
                grad(sum(apply1(first, in)), {x, y});
              }),
              "[first] gradient() returned 1 gradients for 2 inputs; return "
              "one for each, which may be undefined");
  });
}

}  // namespace
}  // namespace dtensor
