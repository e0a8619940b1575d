// SPDX-License-Identifier: Apache-2.0
// Rotary embedding.
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// The frequencies of the pairs; dtensor::Rope (ops/attention.h) explains them.
struct Frequencies {
  int64_t dims = 0;  // even, and at most d
  double theta = 10000;
  double factor = 0, low_freq_factor = 0, high_freq_factor = 0;
  int64_t original_positions = 0;
  bool operator==(const Frequencies&) const = default;
};

// With x1 and x2 for the halves of the first `dims` numbers of a head:
// out[i] = x1[i] * cos - x2[i] * sin
// out[i + dims/2] = x2[i] * cos + x1[i] * sin
// The other numbers are copied. The angle of pair i is the head's position
// times the frequency of the pair, theta^(-2i/dims) unless it is scaled. Angles
// are computed in f64; sines and cosines are rounded to stat_of(x's type).
struct Rotary {
  DType type = DType::kF32;
  int64_t b = 0, h = 0, s = 0, d = 0;
  HeadsIn x = {};
  HeadsOut out = {};  // may be x, with its strides
  Frequencies of = {};
  int64_t position_offset = 0;         // of the first of the s rows
  const int64_t* positions = nullptr;  // [b, s]: instead of the offset
  bool inverse = false;                // rotate by the opposite angle
};

// Throws Error if dims is odd or more than d. It is a function of its own
// because nvcc cannot compile error.h.
void check_rotary(const Rotary&);

}  // namespace dtensor::kernels
