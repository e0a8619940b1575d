// SPDX-License-Identifier: Apache-2.0
// Each method is the function of its name; and what does not compile.
#include "dtensor/tensor_methods.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtensor/dtensor.h"
#include "tests/array.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::values;

void on(const std::string& text, const std::function<void(const Mesh&)>& fn) {
  const Mesh mesh = Mesh::parse(text);
  run(mesh.num_ranks(), [&](Runtime&) { fn(mesh); });
}

void same(const DistTensor& a, const DistTensor& b) {
  EXPECT_EQ(a.spec(), b.spec());
  EXPECT_EQ(values(a), values(b));
}

TEST(TensorMethods, AreTheFunctions) {
  on("x=3", [](const Mesh& mesh) {
    const DistTensor x = randn({4, 6}, mesh, "S1", DType::kF64);
    EXPECT_EQ(x.dim(), 2);
    EXPECT_EQ(x.numel(), 24);
    EXPECT_EQ(x.placements().resolve(mesh, x.shape()), x.layout());
    EXPECT_EQ(&x.device(), &x.local().device());
    same(x.to(DType::kBF16), cast(x, DType::kBF16));
    same(x.clone(), x);
    same(x.sum(), sum(x));
    same(x.sum({0}, true), sum(x, {0}, true));
    same(x.mean({1}), mean(x, {1}));
    same(x.view({2, 2, 6}), view(x, {2, 2, 6}));
    same(x.reshape({24}), reshape(x, {24}));
    same(x.expand({2, -1, -1}), expand(x, {2, -1, -1}));
    same(x.permute({1, 0}), transpose(x));
    same(x.transpose(0, 1), transpose(x));
    same(x.t(), transpose(x));
    same(x.T(), transpose(x));
    EXPECT_TRUE(x.contiguous().same_as(x));
    EXPECT_FALSE(x.clone().same_as(x));
  });
}

TEST(TensorMethods, InPlace) {
  on("x=2", [](const Mesh& mesh) {
    const DistTensor x = empty({2, 3}, mesh, "S1", DType::kI32);
    EXPECT_EQ(x.fill_(3).to_string(), "i32[2, 3](S1) [[3, 3, 3], [3, 3, 3]]");
    x.copy_(tensor({1.5, 2., -7.9}, mesh));
    EXPECT_EQ(values(x), (std::vector<double>{1, 2, -7, 1, 2, -7}));
    EXPECT_EQ(values(x.zero_()), std::vector<double>(6));
    const DistTensor p = ones({3}, mesh).redistribute("P");
    EXPECT_EQ(p.fill_(2).to_string(), "f32[3](P) [2, 2, 2]");
    DistTensor w = ones({3}, mesh).set_requires_grad();
    EXPECT_THROW(w.zero_(), Error);
    const NoGrad no_grad;
    EXPECT_EQ(values(w.zero_()), std::vector<double>(3));
  });
}

template <class X>
concept CountsAsTrue = requires(const X& x) {
  x ? 1 : 2;
};
template <class X>
concept Negated = requires(const X& x) {
  !x;
};
template <class X>
concept And = requires(const X& x) {
  x&& x;
};
template <class X>
concept HasBackward = requires(const X& x) {
  x.backward();
};
static_assert(!CountsAsTrue<DistTensor> && !Negated<DistTensor> &&
              !And<DistTensor> && !HasBackward<DistTensor>);

}  // namespace
}  // namespace dtensor
