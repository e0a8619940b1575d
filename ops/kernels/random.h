// SPDX-License-Identifier: Apache-2.0
// Random numbers.
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// Values are functions of (seed, stream id, row-major index in the global
// shape), so any box on any rank holds the same numbers. They come from
// Philox4x32-10 (philox.h) with key `seed` and counter (block, stream id).
// Block i serves, in order, indices 4 i to 4 i + 3 with 32-bit words, or 2 i
// and 2 i + 1 with 64-bit words.
enum class Distribution : uint8_t {
  // Uniform in [0, 1), scaled to [p0, p1): f32 with 24 random bits, f64 with 53
  // (from 64-bit words), bf16 with 8, f16 with 11.
  kUniform,
  // Normal with mean p0 and standard deviation p1, by Box-Muller in f64. An
  // even index and the odd one behind it share a pair of words. f64 takes
  // 64-bit words. Floats.
  kNormal,
  // 1 with probability p0, else 0. All dtypes, with equal draws (32 bits).
  kBernoulli,
  // i32 and i64: an integer in [p0, p1), from a 64-bit word.
  kInteger,
  // i32 and i64: the words themselves.
  kBits,
};

// Selects the numbers: by seed and stream, or, if `at` is not null, by the pair
// {seed, stream} there in device memory when the work runs.
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
