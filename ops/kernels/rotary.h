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
  DType type = DType::kF32;
  int64_t b = 0, h = 0, s = 0, d = 0;  // d must be even
  HeadsIn x = {};
  HeadsOut out = {};  // may be x, with its strides
  double theta = 10000;
  int64_t position_offset = 0;  // of the first of the s rows
  bool inverse = false;         // rotate by the opposite angle: the gradient
};

// Throws Error if d is odd. It is a function of its own because nvcc cannot
// compile error.h.
void check_rotary(const Rotary&);

}  // namespace dtensor::kernels
