// SPDX-License-Identifier: Apache-2.0
// A result that its operator saved for the gradient may not be overwritten
// unnoticed: the gradient would be that of other values.
#include <gtest/gtest.h>

#include "dtensor/autograd.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/runtime.h"
#include "dtensor/scopes.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

TEST(SavedOutputs, AreChecked) {
  run(1, [](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"x", 1}});
    DistTensor x = randn({2, 3}, mesh, {}, DType::kF64, {1, 1});
    x.set_requires_grad();
    for (auto op : {+[](const DistTensor& t) { return softmax(t, 1); },
                    +[](const DistTensor& t) { return amax(t, {1}); }}) {
      DistTensor y = op(x);
      const DistTensor loss = sum(square(y.detach()) * y);
      DistTensor untouched = op(x);
      EXPECT_NO_THROW(grad(sum(untouched), {x}));
      {
        NoGrad scope;
        y.assign(Tensor::full(y.shape(), DType::kF64, 5));
      }
      DistTensor z = sum(y);
      const std::string e = testing::error_of([&] { grad(z, {x}); });
      EXPECT_NE(e.find("output 0, "), e.npos) << e;
      EXPECT_NE(e.find("was changed in place after it was made"), e.npos) << e;
    }
  });
}

}  // namespace
}  // namespace dtensor
