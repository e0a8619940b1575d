// SPDX-License-Identifier: Apache-2.0
// A product of halves whose batches are summed up is made in f32 first, and its
// epilogue was done there, too: b's sum was written as f32, beyond its end.
#include <gtest/gtest.h>

#include <vector>

#include "dtensor/ops/kernels/kernels.h"

namespace dtensor::kernels {
namespace {

template <class T>
void expect_sum_alone() {
  constexpr int64_t kBatches = 5, kM = 3, kN = 4, kK = 2;
  const std::vector<T> a(kBatches * kM * kK, T(1.f)),
      b(kBatches * kK * kN, T(0.5f));
  std::vector<T> c(kM * kN), sum(3 * kN, T(7.f));
  Gemm g{.type = dtype_of<T>, .c_type = dtype_of<T>};
  g.batch = {kBatches};
  g.m = kM, g.n = kN, g.k = kK;
  g.a = a.data(), g.a_batch_strides = {kM * kK}, g.a_m = 1, g.a_k = kM;
  // Not a k of more: the batch does not continue it.
  g.b = b.data(), g.b_batch_strides = {kN}, g.b_k = kBatches * kN, g.b_n = 1;
  g.c = c.data(), g.c_batch_strides = {0}, g.c_m = kN, g.c_n = 1;
  g.epilogue.kind = Epilogue::kSumB;
  g.epilogue.b_sum = sum.data() + kN;
  cpu_kernels().run({}, g);
  for (const T x : c) EXPECT_EQ(static_cast<float>(x), kBatches * kK * 0.5f);
  for (int64_t i = 0; i < 3 * kN; ++i)
    EXPECT_EQ(static_cast<float>(sum[static_cast<size_t>(i)]),
              i / kN == 1 ? kBatches * kK * 0.5f : 7.f)
        << i;
}

TEST(GemmEpilogueOfHalves, IsDoneOnce) {
  expect_sum_alone<bf16>();
  expect_sum_alone<f16>();
}

}  // namespace
}  // namespace dtensor::kernels
