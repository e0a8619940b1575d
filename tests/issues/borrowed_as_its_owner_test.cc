// SPDX-License-Identifier: Apache-2.0
// A pipeline borrowed a tied parameter as one that operators may not move,
// though its owner lets them: a program that runs without stages was refused.
#include <gtest/gtest.h>

#include <vector>

#include "dtensor/nn/pipeline.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/runtime.h"

namespace dtensor::nn {
namespace {

DistTensor loss_of(const DistTensor& x, const DistTensor& w) {
  return sum(square(matmul(x, transpose(w, 0, 1))));
}

TEST(Pipeline, BorrowsAParameterAsItsOwnerHasIt) {
  std::vector<double> want;
  run(1, [&](Runtime&) {
    const Mesh one = Mesh::parse("x=1");
    DistTensor w = randn({3, 4}, one, "R", DType::kF64, {1, 0});
    w.set_requires_grad();
    const DistTensor x = randn({5, 3}, one, "R", DType::kF64, {2, 0});
    want = grad(loss_of(tanh(matmul(x, w)), w), {w})[0].full().to_doubles();
  });
  for (const Keep keep : {Keep::kMove, Keep::kStay, Keep::kGatherOnUse})
    for (const char* layout : {"R", "S0", "S1"}) {
      // (A split parameter that stays may have no layout for these products.)
      if (keep == Keep::kStay && layout[0] == 'S') continue;
      run(4, [&](Runtime& rt) {
        const Mesh meshes[] = {Mesh::parse("x=2 of ranks 0,1"),
                               Mesh::parse("x=2 of ranks 2,3")};
        DistTensor w = randn({3, 4}, meshes[0], layout, DType::kF64, {1, 0});
        w.as_parameter(keep);
        PipelineStage first{
            meshes[0],
            [&](const DistTensor& x, int64_t, std::span<const DistTensor>) {
              return tanh(matmul(x, w));
            },
            {w}};
        PipelineStage last{
            meshes[1],
            [&](const DistTensor& y, int64_t, std::span<const DistTensor> b) {
              EXPECT_EQ(b[0].keep(), keep) << layout;
              return loss_of(y, b[0]);
            },
            {}};
        last.borrows = {w};
        Pipeline pipeline(make_schedule("gpipe", 2, 1, 1), {first, last});
        const DistTensor x =
            randn({5, 3}, meshes[0], "S0", DType::kF64, {2, 0});
        const std::vector<double> share{1};
        const PipelineResult result = pipeline.run({x}, share, {});
        if (rt.rank() > 1) return;
        const auto got = result.grads[0][0].full().to_doubles();
        for (size_t i = 0; i < want.size(); ++i)
          EXPECT_NEAR(got[i], want[i], 1e-12) << layout;
      });
    }
}

}  // namespace
}  // namespace dtensor::nn
