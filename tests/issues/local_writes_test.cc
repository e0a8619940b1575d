// SPDX-License-Identifier: Apache-2.0
// A write through a tensor's local part is seen as any other write in place: a
// gradient that needs what was there says so.
#include <gtest/gtest.h>

#include <type_traits>
#include <vector>

#include "dtensor/autograd.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/runtime.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

// What is read cannot be written by mistake.
static_assert(std::is_same_v<decltype(Tensor().ptr<double>()), const double*>);
static_assert(std::is_same_v<decltype(Tensor().data()), const void*>);

TEST(LocalWrites, ToWhatWasSavedAreNoticed) {
  run(2, [](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"x", 2}});
    const DistTensor x =
        randn({4, 3}, mesh, "S0", DType::kF64, {1, 1}).set_requires_grad();
    const DistTensor used = sum(square(x));
    const DistTensor made = softmax(x, 1), of_made = sum(made);
    EXPECT_NO_THROW(grad(sum(square(x)), {x}));
    made.local().mutable_ptr<double>()[0] = 1;
    std::string e = testing::error_of([&] { grad(of_made, {x}); });
    EXPECT_NE(e.find("was changed in place after it was made"), e.npos) << e;
    x.local().mutable_ptr<double>()[0] = 1;
    e = testing::error_of([&] { grad(used, {x}); });
    EXPECT_NE(e.find("was changed in place after it was used"), e.npos) << e;
  });
}

// local() is const, and its part can be written to.
TEST(LocalWrites, ByFillAndCopyFrom) {
  run(2, [](Runtime& rt) {
    const DistTensor x = zeros({4}, rt.mesh({{"x", 2}}), "S0");
    x.local().fill(static_cast<double>(rt.rank()));
    EXPECT_EQ(x.full().to_doubles(), (std::vector<double>{0, 0, 1, 1}));
    x.local().copy_from(Tensor::full({2}, DType::kF32, 3));
    EXPECT_EQ(x.full().to_doubles(), (std::vector<double>{3, 3, 3, 3}));
  });
}

TEST(LocalWrites, ReadingIsNone) {
  run(1, [](Runtime& rt) {
    const DistTensor x =
        randn({2}, rt.mesh({{"x", 1}}), {}, DType::kF64, {1, 1})
            .set_requires_grad();
    const DistTensor y = sum(square(x));
    const double first = x.local().ptr<double>()[0];
    EXPECT_EQ(grad(y, {x})[0].local().ptr<double>()[0], 2 * first);
  });
}

}  // namespace
}  // namespace dtensor
