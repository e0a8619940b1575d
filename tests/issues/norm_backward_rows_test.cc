// SPDX-License-Identifier: Apache-2.0
// The backward operators of the norms and of cross entropy took statistics
// that broadcast against their rows, and the kernel read past their end.
#include <gtest/gtest.h>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/op.h"
#include "dtensor/placement/error.h"
#include "dtensor/runtime.h"

namespace dtensor {
namespace {

TEST(NormBackwardRows, DoNotBroadcast) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const DistTensor x = ones({4, 3}, mesh), gamma = ones({3}, mesh);
    const DistTensor one = ones({1}, mesh), dy = ones({1, 3}, mesh);
    const Op& layer = *find_op("layer_norm_backward");
    const DistTensor in[] = {x, gamma, one, one, dy};
    EXPECT_THROW(apply(layer, in), Error);
    const Op& rms = *find_op("rms_norm_backward");
    const DistTensor few[] = {x, gamma, one, x};
    EXPECT_THROW(apply(rms, few), Error);
  });
}

}  // namespace
}  // namespace dtensor
