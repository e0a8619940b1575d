// SPDX-License-Identifier: Apache-2.0
// Sums that do not depend on the order of what they add. The CPU has them.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>

#include "dtensor/ops/kernels/kernel.h"
#include "dtensor/ops/kernels/operands.h"

namespace dtensor::kernels {

// out[j] += the sum of in[i] over all i with the same j (placement/exact.h).
// The strides of `out` are 0 along dimensions that are summed. Takes f32, bf16
// and f16.
struct ExactSum {
  DType type = DType::kF32;
  Shape shape = {};
  const void* in = nullptr;
  Shape strides = {};
  void* out = nullptr;  // of type exact
  Shape out_strides = {};
};

// For each row of x, adds up exp(x - max) as integers: sums[r] is the number of
// units, each term without its fraction of a unit, and nans[r] the number of
// terms that are NaN. Sums of several parts of a row may be added; they
// overflow after 2^23 elements. The rows of x are not side by side. Takes f32,
// bf16 and f16.
struct ExpUnits {
  static constexpr double kUnit = 0x1p-40;
  Matrix x;
  const void* max = nullptr;  // of type `stat`: >= each x of the row
  int64_t* sums = nullptr;    // [rows]
  int64_t* nans = nullptr;    // [rows]
};

// The sum of squares of floats, as integers: a float with the exponent e (its
// bits 23 to 30) and the significand s, an integer below 2^24, adds s^2 to the
// number counts[2 e] * 2^32 + counts[2 e + 1]. Counts of several parts may be
// added. They overflow after 2^31 floats. For e = 255, s is 1. The square of an
// f64 is rounded to an f64 first, and its fraction of 2^-298 is dropped; from
// about 2^260 on, it counts as infinite.
struct ExactSquares {
  static constexpr int64_t kCounts = 512;
  DType type = DType::kF32;  // any float
  int64_t n = 0;
  const void* x = nullptr;
  int64_t* counts = nullptr;  // [kCounts], added to
};
// The sum. NaN if a float was infinite or NaN.
inline double sum_of_squares(const int64_t* counts) {
  if (counts[2 * 255] != 0 || counts[2 * 255 + 1] != 0)
    return std::numeric_limits<double>::quiet_NaN();
  double sum = 0;
  for (int e = 0; e < 255; ++e) {
    // The unit of a significand is 2^(e - 150); those of e = 0 are denormal.
    const int unit = 2 * ((e ? e : 1) - 150);
    const int64_t low = counts[2 * e + 1], high = counts[2 * e] + (low >> 32);
    sum += std::ldexp(static_cast<double>(high), unit + 32);
    sum += std::ldexp(static_cast<double>(low & 0xffffffff), unit);
  }
  return sum;
}

}  // namespace dtensor::kernels
