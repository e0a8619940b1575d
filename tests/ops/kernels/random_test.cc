// SPDX-License-Identifier: Apache-2.0
// A device's random numbers must have the CPU's bits, so that a program has the
// same results wherever it runs.
#include "dtensor/ops/kernels/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "dtensor/ops/kernels/kernels.h"
#include "tests/ops/kernels/testing.h"

namespace dtensor::kernels {
namespace {

constexpr uint64_t kSeed = 0x0123456789abcdefu;
constexpr uint64_t kStream = 0xfedcba9876543210u;

Elements draw(const Kernels& kernels, Distribution d, DType t, double p0,
              double p1) {
  // Begin inside a block of random numbers, with rows that begin anywhere in
  // one.
  const Shape size = {3, 1001};
  Elements a(t, numel(size));
  kernels.run({}, RandomBox{.distribution = d,
                            .type = t,
                            .key = {kSeed, kStream},
                            .global = {5, 1013},
                            .lo = {1, 6},
                            .size = size,
                            .out = a.data(),
                            .out_strides = contiguous_strides(size),
                            .p0 = p0,
                            .p1 = p1});
  return a;
}

TEST(AgreeTest, RandomBits) {
  struct Case {
    Distribution d;
    double p0, p1;
    std::vector<DType> types;
  };
  const std::vector<DType> floats(std::begin(kFloats), std::end(kFloats)),
      all(std::begin(kAll), std::end(kAll)),
      integers = {DType::kI32, DType::kI64};
  for (const Case& c : {Case{Distribution::kUniform, 0, 1, floats},
                        Case{Distribution::kUniform, -2.5, 0.3, floats},
                        Case{Distribution::kBernoulli, 0.3, 0, all},
                        Case{Distribution::kInteger, -3, 4, integers},
                        Case{Distribution::kInteger, -0x1p31, 0x1p31, integers},
                        Case{Distribution::kBits, 0, 0, integers}})
    for (DType t : c.types) {
      const Elements want = draw(cpu_kernels(), c.d, t, c.p0, c.p1),
                     got = draw(under_test(), c.d, t, c.p0, c.p1);
      EXPECT_EQ(std::memcmp(got.data(), want.data(),
                            static_cast<size_t>(got.size() * size_of(t))),
                0)
          << static_cast<int>(c.d) << " " << name(t);
    }
}

// Normal numbers may differ by two ulp, because each device has its own sine
// and logarithm. In bf16 and f32 they are rounded from f64, nearly always to
// the same number.
TEST(AgreeTest, NormalNumbers) {
  for (DType t : kFloats) {
    const int digits = t == DType::kF64 ? 53 : t == DType::kF32 ? 24 : 8;
    const Elements want = draw(cpu_kernels(), Distribution::kNormal, t, 0, 1),
                   got = draw(under_test(), Distribution::kNormal, t, 0, 1);
    for (int64_t i = 0; i < got.size(); ++i) {
      const double ulp = std::ldexp(1, std::ilogb(want[i]) + 1 - digits);
      ASSERT_LE(std::fabs(got[i] - want[i]), 2 * ulp) << name(t) << " " << i;
    }
  }
}

}  // namespace
}  // namespace dtensor::kernels
