// SPDX-License-Identifier: Apache-2.0
// A row-parallel product plus its bias was all-reduced at once, because the sum
// of a partial and a whole tensor had two ways of one price; so it could not be
// reduce-scattered into a sequence-parallel layout any more.
#include <gtest/gtest.h>

#include <vector>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"

namespace dtensor {
namespace {

DistTensor numbers(const Shape& s, const Mesh& m, const Placements& p,
                   uint64_t stream) {
  return randn(s, m, p, DType::kF64, {3, stream});
}

void expect_near(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.shape(), want.shape());
  for (int64_t i = 0; i < want.numel(); ++i)
    EXPECT_NEAR(got.at(i), want.at(i), 1e-12);
}

TEST(PartialPlusWhole, RowParallelWithABiasIsReduceScattered) {
  const Mesh mesh = Mesh::parse("tp=4");
  run(4, [&](Runtime& rt) {
    DistTensor x = numbers({8, 12}, mesh, "S1", 1);
    DistTensor w = numbers({12, 6}, mesh, "S0", 2).as_parameter();
    DistTensor b = numbers({6}, mesh, "R", 3).as_parameter();
    x.set_requires_grad();
    rt.context().record = true;
    auto& events = rt.context().events;
    events.clear();
    const DistTensor sum = add(matmul(x, w), b);
    EXPECT_TRUE(events.empty());
    EXPECT_EQ(sum.layout().to_string(mesh), "P");
    const DistTensor y = sum.redistribute("S0");
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, StepKind::kReduceScatter);
    EXPECT_EQ(events[0].predicted, 3 * 2 * 6 * 8);
    EXPECT_EQ(events[0].counted, 3 * 2 * 6 * 8);

    // The value and the gradients, against those of whole tensors.
    DistTensor wx = numbers({8, 12}, mesh, "R", 1);
    DistTensor ww = numbers({12, 6}, mesh, "R", 2);
    DistTensor wb = numbers({6}, mesh, "R", 3);
    for (DistTensor* t : {&wx, &ww, &wb}) t->set_requires_grad();
    const DistTensor whole = add(matmul(wx, ww), wb);
    const DistTensor weight = numbers({8, 6}, mesh, "R", 4);
    expect_near(y.full(), whole.full());
    const auto got = grad(dtensor::sum(mul(mul(y, y), weight)), {x, w, b});
    const auto want =
        grad(dtensor::sum(mul(mul(whole, whole), weight)), {wx, ww, wb});
    for (size_t i = 0; i < want.size(); ++i)
      expect_near(got[i].full(), want[i].full());
    EXPECT_EQ(got[1].layout().to_string(mesh), "S0");
    EXPECT_EQ(got[2].layout().to_string(mesh), "R");
  });
}

}  // namespace
}  // namespace dtensor
