// SPDX-License-Identifier: Apache-2.0
// A value that becomes a sum of maxima: the ranks of the second term have to
// hold the identity of the sum, whatever that of the maximum is. They held
// -inf, and the whole became -inf.
#include <gtest/gtest.h>

#include "dtensor/dist_tensor.h"
#include "dtensor/runtime.h"

namespace dtensor {
namespace {

TEST(MixedPartialsFill, KeepsTheValue) {
  const Mesh mesh = Mesh::parse("a=2,b=2");
  run(4, [&](Runtime&) {
    for (const char* layout : {"P,P(max)", "P(max),P", "P,P(min)"}) {
      const DistTensor x = DistTensor::from_global(
          Tensor::full({3}, DType::kF64, -2.5), mesh, layout);
      EXPECT_EQ(x.full().at(2), -2.5) << layout;
    }
  });
}

}  // namespace
}  // namespace dtensor
