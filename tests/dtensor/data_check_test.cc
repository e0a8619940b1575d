// SPDX-License-Identifier: Apache-2.0
// Guards a fix: if ranks passed different values to from_global(), they got a
// result and no error.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "dtensor/dtensor.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;

Tensor counting(int64_t n, int64_t at, double other) {
  std::vector<float> v(static_cast<size_t>(n));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i);
  if (at >= 0) v[static_cast<size_t>(at)] = static_cast<float>(other);
  return Tensor::from({n}, v.data());
}

// Each rank has loaded another batch, although x is replicated along tp.
TEST(DifferentInputs, TheNextCollectiveSaysSo) {
  std::vector<std::string> errors(4);
  run(4, [&](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"dp", 2}, {"tp", 2}});
    const auto rank = static_cast<double>(rt.rank());
    const auto x = DistTensor::from_global(
        Tensor::full({4, 8}, DType::kF32, rank), mesh, {{"dp", Shard(0)}});
    const auto w = ones({8, 6}, mesh, {{"tp", Shard(1)}}).as_parameter();
    errors[static_cast<size_t>(rt.rank())] =
        error_of([&] { mean(matmul(x, w)).item(); });
  });
  for (const std::string& e : errors) {
    EXPECT_EQ(e, errors[0]);
    EXPECT_NE(e.find("disagree about collective #1"), e.npos) << e;
    EXPECT_NE(e.find("; let every rank run the same operators on the same "
                     "layouts in the same order, and pass the same values to "
                     "from_global(); --check (RunOptions::check) "
                     "finds a call that differs"),
              e.npos)
        << e;
  }
}

TEST(DifferentInputs, AMoveSaysSoToo) {
  run(2, [](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"tp", 2}});
    const auto x = DistTensor::from_global(
        counting(100, 99, static_cast<double>(rt.rank())), mesh, "S0");
    EXPECT_NE(error_of([&] { x.full(); }).find("from_global()"),
              std::string::npos);
  });
}

// Equal values are accepted in all types, even if the ranks' strides differ.
TEST(DifferentInputs, EqualOnesPass) {
  run(2, [](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"tp", 2}});
    for (const DType type :
         {DType::kF64, DType::kF32, DType::kBF16, DType::kF16, DType::kI64,
          DType::kI32, DType::kI8, DType::kBool})
      for (const int64_t n : {0, 1, 6, 30}) {
        Tensor t = Tensor::empty({n, 5}, type);
        if (n > 0) t.fill(0);
        if (n > 1) t.slice(0, 1, 2).fill(1);
        if (rt.rank() == 1) t = t.transpose(0, 1).clone().transpose(0, 1);
        const auto x = DistTensor::from_global(t, mesh, "S0");
        EXPECT_EQ(x.full().numel(), 5 * n);
      }
  });
}

TEST(DifferentInputs, CheckInputsComparesAllOfThem) {
  for (const bool checks : {false, true}) {
    RunOptions options;
    options.world = 3;
    options.check = checks;
    std::vector<std::string> errors(3);
    run(options, [&](Runtime& rt) {
      const Mesh mesh = rt.mesh({{"tp", 3}});
      // Without check, ranks compare a sample of the elements, which
      // element 1 is not in.
      errors[static_cast<size_t>(rt.rank())] = error_of([&] {
        const auto x = DistTensor::from_global(
            counting(1000, 1, rt.rank() == 1 ? 7 : 1), mesh, "S0");
        x.full();
      });
    });
    for (const std::string& e : errors) EXPECT_EQ(e, errors[0]);
    if (checks)
      EXPECT_EQ(errors[0].find("[from_global] ranks 0 and 1 pass different "
                               "values for f32[1000](S0) ("),
                0u)
          << errors[0];
    else
      EXPECT_EQ(errors[0], "no error");
  }
}

TEST(DifferentInputs, ADryRunComparesNothing) {
  RunOptions options;
  options.world = 3;
  options.dry_run = options.check = true;
  run(options, [](Runtime& rt) {
    const auto x =
        DistTensor::from_global(counting(8, -1, 0), rt.mesh({{"tp", 3}}), "S0");
    EXPECT_EQ(x.full().numel(), 8);
  });
}

}  // namespace
}  // namespace dtensor
