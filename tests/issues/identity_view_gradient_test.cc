// SPDX-License-Identifier: Apache-2.0
// A view that changes nothing was the tensor itself, so that its gradient took
// in what was made of the source directly.
#include <gtest/gtest.h>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view.h"
#include "dtensor/runtime.h"

namespace dtensor {
namespace {

TEST(IdentityViewGradient, CountsWhatWasMadeOfTheViewAlone) {
  const Mesh m = Mesh::parse("a=1");
  run(1, [&](Runtime&) {
    DistTensor x = ones({2, 1}, m, {}, DType::kF64).set_requires_grad();
    const std::pair<const char*, DistTensor> views[] = {
        {"view", view(x, {2, 1})},         {"reshape", reshape(x, {2, -1})},
        {"permute", permute(x, {0, 1})},   {"transpose", transpose(x, 1, 1)},
        {"slice", slice(x, 0, 0, 2)},      {"narrow", narrow(x, 0, 0, 2)},
        {"split", split(x, {2}, 0)[0]},    {"chunk", chunk(x, 1, 0)[0]},
        {"expand", expand(x, {2, 1})},     {"cat", cat({x}, 0)},
        {"dropout", dropout(x, 0, {1, 1})}};
    for (const auto& [name, y] : views) {
      const auto g = grad(sum(x * 2.0 + y), {y, x});
      EXPECT_EQ(g[0].full().at(1), 1) << name;
      EXPECT_EQ(g[1].full().at(1), 3) << name;
      // A view still, not a copy.
      EXPECT_EQ(y.local().storage(), x.local().storage()) << name;
    }
  });
}

}  // namespace
}  // namespace dtensor
