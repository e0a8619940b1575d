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

// Fills the tables of a Rotary. They are worth keeping between calls.
struct RotaryTable {
  DType type = DType::kF32;  // of the tables
  int64_t s = 0, d = 0;
  double theta = 10000;
  const int64_t* positions = nullptr;
  int64_t position_offset = 0;
  void* cos = nullptr;
  void* sin = nullptr;
};

// The tables for a Rotary without tables.
inline RotaryTable table_for(const Rotary& a, DType type, void* cos,
                             void* sin) {
  return {.type = type,
          .s = a.s,
          .d = a.d,
          .theta = a.theta,
          .positions = a.positions,
          .position_offset = a.position_offset,
          .cos = cos,
          .sin = sin};
}

}  // namespace dtensor::kernels
