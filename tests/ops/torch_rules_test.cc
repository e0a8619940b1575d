// SPDX-License-Identifier: Apache-2.0
// Rules of torch that this library once broke: clamp with one bound, types that
// where and matmul refuse, diagonals of einsum, the transpose of a number.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/runtime.h"
#include "tests/array.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;
using testing::values;
using Values = std::vector<double>;

template <class T>
DistTensor tensor(const Shape& shape, const std::vector<T>& v, const Mesh& mesh,
                  const Placements& p = {}) {
  return DistTensor::from_global(Tensor::from<T>(shape, v.data()), mesh, p);
}

TEST(TorchRules, ClampWithOneBound) {
  run(1, [](Runtime& rt) {
    const double inf = std::numeric_limits<double>::infinity();
    const DistTensor x =
        tensor<double>({4}, {-inf, 0.5, 1, inf}, rt.mesh()).set_requires_grad();
    EXPECT_EQ(values(clamp(x, 1.0)), (Values{1, 1, 1, inf}));
    EXPECT_EQ(values(clamp_min(x, 1.0)), (Values{1, 1, 1, inf}));
    EXPECT_EQ(values(clamp_max(x, 1.0)), (Values{-inf, 0.5, 1, 1}));
    // At the bound the slope is 1.
    EXPECT_EQ(values(grad(sum(clamp_min(x, 1.0)), {x})[0]),
              (Values{0, 0, 1, 1}));
    EXPECT_EQ(values(grad(sum(clamp_max(x, 1.0)), {x})[0]),
              (Values{1, 1, 1, 0}));
    const DistTensor i = tensor<int64_t>({3}, {-5, 2, 9}, rt.mesh());
    EXPECT_EQ(clamp_max(i, 3).dtype(), DType::kI64);
    EXPECT_EQ(values(clamp_max(i, 3)), (Values{-5, 2, 3}));
    EXPECT_EQ(clamp(i, 3).dtype(), DType::kI64);
    EXPECT_EQ(values(clamp(i, 3)), (Values{3, 3, 9}));
    EXPECT_EQ(clamp_max(i, 2.5).dtype(), DType::kF32);
    const DistTensor n = cast(i, DType::kI32);
    EXPECT_EQ(clamp_max(n, 3).dtype(), DType::kI32);
    EXPECT_EQ(values(clamp_max(n, 3)), (Values{-5, 2, 3}));
  });
}

TEST(TorchRules, TypesThatAreRefused) {
  run(2, [](Runtime& rt) {
    const DistTensor x = full({2, 2}, 1, rt.mesh()),
                     i = full({2, 2}, 1, rt.mesh(), {}, DType::kI64);
    EXPECT_EQ(error_of([&] { where(x, x, x); }),
              "[where] the condition is f32, not bool; write ne(condition, 0)");
    EXPECT_EQ(error_of([&] { where(i, 1, x); }),
              "[where] the condition is i64, not bool; write ne(condition, 0)");
    EXPECT_EQ(error_of([&] { matmul(x, i); }),
              "[matmul] the operands are f32 and i64; cast the one of i64 to "
              "f32");
    const DistTensor half = cast(x, DType::kBF16), n = cast(i, DType::kI32);
    EXPECT_EQ(error_of([&] { matmul(x, half); }),
              "[matmul] the operands are f32 and bf16; cast them to one type, "
              "such as f32");
    EXPECT_EQ(error_of([&] { matmul(half, cast(x, DType::kF16)); }),
              "[matmul] the operands are bf16 and f16; cast them to one type, "
              "such as f32");
    EXPECT_EQ(error_of([&] { matmul(n, i); }),
              "[matmul] the operands are i32 and i64; cast them to one type, "
              "such as i64");
    EXPECT_EQ(error_of([&] {
                einsum("ab,bc->ac", {x, cast(x, DType::kF64)});
              }),
              "[einsum] the operands are f32 and f64; cast them to one type, "
              "such as f64");
    EXPECT_EQ(error_of([&] {
                einsum("ab,bc->ac", {i, x});
              }),
              "[einsum] the operands are i64 and f32; cast the one of i64 to "
              "f32");
  });
}

TEST(TorchRules, EinsumTakesDiagonals) {
  run(2, [](Runtime& rt) {
    const double inf = std::numeric_limits<double>::infinity();
    for (const char* layout : {"R", "S0", "S1"}) {
      SCOPED_TRACE(layout);
      const DistTensor x =
          tensor<double>({2, 3, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, inf},
                         rt.mesh(), layout)
              .set_requires_grad();
      EXPECT_EQ(values(einsum("iji->j", {x})), (Values{9, 13, inf}));
      EXPECT_EQ(values(einsum("iji->ij", {x})), (Values{1, 3, 5, 8, 10, inf}));
      EXPECT_EQ(values(grad(sum(einsum("iji->j", {x})), {x})[0]),
                (Values{1, 0, 1, 0, 1, 0, 0, 1, 0, 1, 0, 1}));
    }
    const DistTensor m = tensor<double>({2, 2}, {1, 2, 3, 4}, rt.mesh(), "S0"),
                     v = tensor<double>({2}, {10, 100}, rt.mesh());
    EXPECT_EQ(values(einsum("ii,i->i", {m, v})), (Values{10, 400}));
    EXPECT_EQ(values(einsum("ii->", {m})), (Values{5}));
    const DistTensor cube =
        tensor<double>({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}, rt.mesh(), "S2");
    EXPECT_EQ(values(einsum("iii->i", {cube})), (Values{1, 8}));
    EXPECT_EQ(values(einsum("...ii->...i", {cube})), (Values{1, 4, 5, 8}));
    EXPECT_EQ(error_of([&] {
                einsum("iij->i", {full({2, 3, 1}, 1, rt.mesh())});
              }),
              "[einsum] 'iij->i' takes the diagonal of two dimensions, but "
              "their sizes are 2 and 3; pass equal sizes");
    EXPECT_EQ(error_of([&] { einsum("ii,i->i", {m}); }),
              "[einsum] the list of operands has length 1, but 'ii,i->i' needs "
              "length 2; pass one operand for each term of the rule");
    EXPECT_NE(error_of([&] { einsum("i->ii", {v}); }), "no error");
    EXPECT_EQ(einsum("ii->i", {cast(m, DType::kI32)}).dtype(), DType::kI32);
  });
}

TEST(TorchRules, TransposeOfANumber) {
  run(1, [](Runtime& rt) {
    const DistTensor x = full({}, 3, rt.mesh());
    EXPECT_EQ(values(transpose(x, 0, -1)), (Values{3}));
    EXPECT_EQ(transpose(x, 0, 0).ndim(), 0);
    EXPECT_NE(error_of([&] { transpose(x, 0, 1); }), "no error");
  });
}

}  // namespace
}  // namespace dtensor
