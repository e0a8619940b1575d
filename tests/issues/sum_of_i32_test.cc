// SPDX-License-Identifier: Apache-2.0
// The sum of i32 wrapped around in i32; torch's is i64.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "dtensor/ops/contraction.h"
#include "dtensor/runtime.h"

namespace dtensor {
namespace {

TEST(SumOfI32, IsI64) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  for (const char* layout : {"R", "S0", "S1"})
    run(2, [&](Runtime& rt) {
      const int32_t v[] = {kMost, kMost, 3, kMost};
      const DistTensor x =
          DistTensor::from_global(Tensor::from({2, 2}, v), rt.mesh(), layout);
      const DistTensor all = sum(x), rows = sum(x, {1}), to = sum_to(x, {2, 1});
      for (const DistTensor& y : {all, rows, to})
        EXPECT_EQ(name(y.dtype()), "i64");
      EXPECT_EQ(all.item(), 3.0 * kMost + 3);
      for (const DistTensor& y : {rows, to}) {
        EXPECT_EQ(y.full().at(0), 2.0 * kMost) << layout;
        EXPECT_EQ(y.full().at(1), 3.0 + kMost) << layout;
      }
    });
}

}  // namespace
}  // namespace dtensor
