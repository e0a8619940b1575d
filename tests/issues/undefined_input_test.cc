// An undefined tensor is told with the operator that got it and the number of
// the input, and norms do without their weights, as torch's do.
#include <gtest/gtest.h>

#include <string>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/norm.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/random.h"
#include "dtensor/runtime/runtime.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;

std::string sentence(const std::string& op, int input, int of) {
  return "[" + op + "] input " + std::to_string(input) + " of " +
         std::to_string(of) +
         " is an undefined tensor; assign it a value first";
}

TEST(UndefinedInput, NamesTheOperatorAndTheInput) {
  run(2, [](Runtime& rt) {
    const DistTensor x = full({2, 2}, 1, rt.mesh()), none;
    EXPECT_EQ(error_of([&] { exp(none); }), sentence("exp", 0, 1));
    EXPECT_EQ(error_of([&] { mul(x, none); }), sentence("mul", 1, 2));
    EXPECT_EQ(error_of([&] { none + x; }), sentence("add", 0, 2));
    EXPECT_EQ(error_of([&] { none * 2; }), sentence("mul", 0, 2));
    EXPECT_EQ(error_of([&] { sub(2, none); }), sentence("sub", 1, 2));
    EXPECT_EQ(error_of([&] { matmul(x, none); }), sentence("matmul", 1, 2));
    EXPECT_EQ(error_of([&] {
                einsum("ab,bc->ac", {none, x});
              }),
              sentence("einsum", 0, 2));
    EXPECT_EQ(error_of([&] { where(gt(x, 0), none, x); }),
              sentence("where", 1, 3));
    EXPECT_EQ(error_of([&] { where(gt(x, 0), 1, none); }),
              sentence("where", 2, 3));
    EXPECT_EQ(error_of([&] { cast(none, DType::kF64); }),
              sentence("cast", 0, 1));
    EXPECT_EQ(error_of([&] { add_rms_norm(x, x, none); }),
              sentence("add_rms_norm", 2, 3));
  });
}

TEST(UndefinedInput, NormsWithoutWeights) {
  run(2, [](Runtime& rt) {
    const double v[] = {1, 2, 3, 6, 0, 0, 4, 8};
    const DistTensor x = DistTensor::from_global(
        Tensor::from<double>({2, 4}, v), rt.mesh(), "S1");
    const DistTensor one = full({4}, 1, rt.mesh(), {}, DType::kF64),
                     zero = full({4}, 0, rt.mesh(), {}, DType::kF64);
    const Tensor layer = layer_norm(x).full(),
                 layer_want = layer_norm(x, one, zero).full(),
                 rms = rms_norm(x).full(), rms_want = rms_norm(x, one).full();
    for (int64_t i = 0; i < 8; ++i) {
      EXPECT_EQ(layer.at(i), layer_want.at(i));
      EXPECT_EQ(rms.at(i), rms_want.at(i));
    }
    // (1 - 3) / sqrt(3.5)
    EXPECT_NEAR(layer.at(0), -1.0690449676, 1e-5);
  });
}

}  // namespace
}  // namespace dtensor
