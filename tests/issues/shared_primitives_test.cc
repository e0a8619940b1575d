// SPDX-License-Identifier: Apache-2.0
// oneDNN's cache handed the primitives of one rank's bf16 products to the other
// ranks, without their leave: a race that the thread sanitizer reports where
// oneDNN is 2.6, and TensorFlow had seen memory corrupted by.
#include <gtest/gtest.h>

#include <dnnl.hpp>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/runtime.h"

namespace dtensor {
namespace {

TEST(SharedPrimitives, AreNone) {
  dnnl::set_primitive_cache_capacity(1024);  // as it is by default
  run(4, [](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"x", 4}});
    const auto draw = [&](uint64_t stream) {
      return randn({33, 33}, mesh, "R", DType::kBF16, {1, stream});
    };
    for (int i = 0; i < 10; ++i) matmul(draw(1), draw(2));
  });
  EXPECT_EQ(dnnl::get_primitive_cache_capacity(), 0);
}

}  // namespace
}  // namespace dtensor
