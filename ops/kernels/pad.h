// SPDX-License-Identifier: Apache-2.0
// Borders that repeat elements of a tensor.
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"
#include "dtensor/placement/shape.h"

namespace dtensor::kernels {

// Where an index outside of [0, n) reads: mirrored at the first and the last
// element, at the nearest element, or as if x were repeated.
enum class Edge : uint8_t { kMirrored, kNearest, kAround };

// y[i, j, ...] = x[i - before[0], j - before[1], ...]. x and y have the same
// number of dimensions, at least one; x has elements, and any strides; y is
// contiguous. REQUIRES: a border is at most as wide as x; if kMirrored, at most
// n - 1. Takes all dtypes.
struct PadEdges {
  DType type = DType::kF32;
  Edge edge = Edge::kMirrored;
  Shape in, strides, before, out;
  const void* x = nullptr;
  void* y = nullptr;
};

}  // namespace dtensor::kernels
