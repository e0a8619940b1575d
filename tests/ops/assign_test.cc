// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/assign.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtensor/dtensor.h"
#include "tests/ops/structured_testing.h"
#include "tests/testing.h"

namespace dtensor::testing {
namespace {

TEST(InPlace, InEveryLayout) {
  for (const char* of_x : {"R", "S0", "S1", "P"})
    for (const char* of_y : {"R", "S0", "S1", "P"})
      on_mesh("x=3", [&](const Mesh& mesh) {
        const auto at = [&](const Array& a, const char* layout) {
          return put(a, mesh).redistribute(layout);
        };
        const Array x = values({5, 4}, 1), y = values({5, 4}, 2);
        const DistTensor tx = at(x, of_x), handle = tx, ty = at(y, of_y);
        const Spec* spec = tx.spec();
        Array want = x;
        tx += ty;
        tx *= 2;
        tx -= ty;
        tx /= ty;
        tx += 1;
        tx -= at(values({4}, 3), "R");
        const Array row = values({4}, 3);
        for (int64_t i = 0; i < 20; ++i)
          want.at(i) =
              ((x.at(i) + y.at(i)) * 2 - y.at(i)) / y.at(i) + 1 - row.at(i % 4);
        EXPECT_EQ(handle.spec(), spec);
        expect_near(array_of(handle.full()), want, 1e-12,
                    std::string(of_x) + " " + of_y);
      });
}

TEST(InPlace, KeepsItsType) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const DistTensor x = full({3}, 2, mesh, "S0", DType::kBF16),
                     n = full({3}, 5, mesh, "S0", DType::kI32);
    x += full({3}, 0.25, mesh, "S0", DType::kF64);
    n -= tensor({1, 2, 3}, mesh);
    EXPECT_EQ(x.to_string(), "bf16[3](S0) [2.25, 2.25, 2.25]");
    EXPECT_EQ(n.to_string(), "i32[3](S0) [4, 3, 2]");
  });
}

// Inside NoGrad, a parameter may change; a gradient that needs its old values
// finds out.
TEST(InPlace, OfAParameter) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const DistTensor w = put(values({4}, 1), mesh, "S0").set_requires_grad();
    const DistTensor loss = sum(w * w);
    const auto g = grad(loss, {w});
    {
      const NoGrad no_grad;
      for (const DistTensor& p : {w}) p -= g[0] * 0.5;  // to 0
    }
    EXPECT_EQ(values(w), std::vector<double>(4));
    EXPECT_TRUE(w.requires_grad());
    EXPECT_THROW(grad(loss, {w}), Error);
  });
}

TEST(InPlace, Errors) {
  const auto error = [](auto&& call) {
    return error_of(2, [&](const Mesh& m) { call(zeros({2, 3}, m, "S1"), m); });
  };
  EXPECT_EQ(
      error([](DistTensor x, auto&) {
        x.set_requires_grad();
        x += 1;
      }),
      "[+=] f32[2, 3](S1) requires a gradient, and a change in place is "
      "not recorded; make a new tensor, as in x = x + y, or open a NoGrad "
      "scope");
  EXPECT_EQ(error([](DistTensor x, auto& m) {
              x *= ones({3}, m).set_requires_grad();
            }),
            "[*=] f32[3](R) requires a gradient, and a change in place is not "
            "recorded; make a new tensor, as in x = x + y, or open a NoGrad "
            "scope");
  EXPECT_EQ(error([](DistTensor x, auto& m) {
              x += ones({4, 2, 3}, m);
            }),
            "[+=] the result f32[4, 2, 3](S2) cannot be put into f32[2, "
            "3](S1); make a new tensor, as in x = x + y");
  EXPECT_EQ(error([](DistTensor x, auto&) {
              const DistTensor n = cast(x, DType::kI64);
              n /= 2;
            }),
            "[/=] the result f32[2, 3](S1) cannot be put into i64[2, 3](S1); "
            "make a new tensor, as in x = x + y");
  EXPECT_EQ(error([](DistTensor x, auto& m) { assign(x, ones({2}, m)); }),
            "[assign] the value f32[2](R) does not have the shape of the "
            "tensor f32[2, 3](S1); pass a value of that shape");
}

// x[0] += y would change a temporary, so that it does not compile.
template <class X>
constexpr bool can_add = requires(X&& x) {
  std::forward<X>(x) += 1;
};
static_assert(can_add<DistTensor&> && can_add<const DistTensor&>);
static_assert(!can_add<DistTensor>);

}  // namespace
}  // namespace dtensor::testing
