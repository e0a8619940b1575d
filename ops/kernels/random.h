// Random numbers.
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// A function of (seed, stream id, row-major index in the global shape), so that
// any box on any rank holds the same numbers: Philox4x32-10 (philox.h) with key
// seed and counter (block, stream id). One block serves the four consecutive
// indices 4 block ... (32-bit words), or two (64-bit words), in order.
enum class Distribution : uint8_t {
  // [0, 1) scaled to [p0, p1): f32 with 24 bits, f64 with 53 (64-bit words),
  // bf16 with 8, f16 with 11.
  kUniform,
  // Mean p0, standard deviation p1, by Box-Muller in f64; neighbours at even
  // and odd indices share a pair. f64 from 64-bit words. Floats.
  kNormal,
  // 1 with probability p0, else 0; of all dtypes, the same draws (32 bits).
  kBernoulli,
  // i32, i64: an integer in [p0, p1), from 64-bit words.
  kInteger,
  // i32, i64: the words themselves.
  kBits,
};

// Which numbers: of a seed and a stream, or of those that lie at `at` {seed,
// stream} in memory of the device when the work runs.
struct RandomKey {
  uint64_t seed = 0, stream = 0;
  const uint64_t* at = nullptr;
};

class RandomKernels {
 public:
  virtual ~RandomKernels() = default;
  // The box [lo, lo + size) of `global`, written at out with strides.
  virtual void random_box(Stream, Distribution, DType, const RandomKey&,
                          const Shape& global, const Shape& lo,
                          const Shape& size, void* out,
                          const Shape& out_strides, double p0,
                          double p1) const = 0;
};

}  // namespace dtensor::kernels
