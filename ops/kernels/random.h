// SPDX-License-Identifier: Apache-2.0
// Random numbers.
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// Values are functions of (seed, stream id, row-major index in the global
// shape), so an index has the same number in any box on any rank. They come
// from Philox4x32-10 (philox.h) with key `seed` and counter (block, stream id).
// Block i serves, in order, indices 4 i to 4 i + 3 with 32-bit words, or 2 i
// and 2 i + 1 with 64-bit words.
enum class Distribution : uint8_t {
  // Uniform in [0, 1), scaled to [p0, p1): what would be rounded to p1 becomes
  // the number below it. f32 takes 24 random bits, f64 53 (from 64-bit words),
  // bf16 8, and f16 11. Takes floats.
  kUniform,
  // Normal with mean p0 and standard deviation p1, by Box-Muller in f64. An
  // even index and the odd one behind it share a pair of words, of 64 bits for
  // f64. Takes floats.
  kNormal,
  // 1 with probability p0, else 0. Takes all dtypes; a draw (from 32 bits) is
  // the same for each of them.
  kBernoulli,
  // i32 and i64: an integer in [p0, p1), from a 64-bit word.
  kInteger,
  // i32 and i64: the random words themselves, of 32 or 64 bits.
  kBits,
};

// Selects the numbers by seed and stream. If `at` is not null, the members
// `seed` and `stream` are ignored, and the kernel reads the pair {seed, stream}
// at this address in device memory when it runs.
struct RandomKey {
  uint64_t seed = 0, stream = 0;
  const uint64_t* at = nullptr;
};

// Writes the box [lo, lo + size) of the shape `global` to out, with strides.
struct RandomBox {
  Distribution distribution = Distribution::kUniform;
  DType type = DType::kF32;
  RandomKey key;
  Shape global, lo, size;
  void* out = nullptr;
  Shape out_strides;
  double p0 = 0, p1 = 0;
};

}  // namespace dtensor::kernels
