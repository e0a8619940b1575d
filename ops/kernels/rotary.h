// Rotary embedding.
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// out[..., :d/2] = x1 cos - x2 sin; out[..., d/2:] = x2 cos + x1 sin. x1 and x2
// are the halves of x's last dimension; the angle is position theta^(-2i/d).
// Angles are computed in f64; sines and cosines are rounded to stat_of(x's
// type).
struct Rotary {
  int64_t b = 0, h = 0, s = 0, d = 0;  // d must be even
  const void* x = nullptr;
  int64_t x_strides[4] = {};  // the last is 1
  void* out = nullptr;        // may be x, with x's strides
  int64_t out_strides[4] = {};
  // Tables [s, d/2] of that type. If null, the kernel computes them: row i is
  // at position positions[i], or position_offset + i if `positions` is null.
  const void* cos = nullptr;
  const void* sin = nullptr;
  double theta = 10000;
  const int64_t* positions = nullptr;
  int64_t position_offset = 0;
  bool inverse = false;  // rotate by the opposite angle: the gradient
};

// Throws Error if d is odd. It is a function of its own because nvcc cannot
// compile error.h.
void check_rotary(const Rotary&);

class RotaryKernels {
 public:
  virtual ~RotaryKernels() = default;
  virtual void rotary(Stream, DType, const Rotary&) const = 0;
  // Fills the tables of a Rotary. They are worth keeping between calls.
  virtual void rotary_table(Stream, DType stat, int64_t s, int64_t d,
                            double theta, const int64_t* positions,
                            int64_t position_offset, void* cos,
                            void* sin) const = 0;
};

}  // namespace dtensor::kernels
