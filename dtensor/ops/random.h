// Tensors from nothing, and random numbers. The values depend on the global
// index, the seed and the stream alone: equal on every mesh and layout.
#pragma once
#include <cstdint>
#include <vector>

#include "dtensor/ops/op.h"

namespace dtensor {

DistTensor zeros(const Shape&, const Mesh&, const Placements& = {},
                 DType = DType::kF32);
DistTensor ones(const Shape&, const Mesh&, const Placements& = {},
                DType = DType::kF32);
DistTensor full(const Shape&, double value, const Mesh&, const Placements& = {},
                DType = DType::kF32);
// 0, 1, ..., n-1.
DistTensor arange(int64_t n, const Mesh&, const Placements& = {},
                  DType = DType::kI64);

// Where random numbers come from: Philox4x32-10 keyed by (seed, stream).
struct Generator {
  uint64_t seed = 0;
  uint64_t stream = 0;  // which use: hash of (module path, step, ordinal)
};
// Normal with that mean and standard deviation; uniform in [lo, hi).
DistTensor randn(const Shape&, const Mesh&, const Placements& = {},
                 DType = DType::kF32, Generator = {}, double mean = 0,
                 double std = 1);
DistTensor uniform(const Shape&, const Mesh&, const Placements& = {},
                   DType = DType::kF32, Generator = {}, double lo = 0,
                   double hi = 1);
// Integers in [lo, hi), i32 or i64.
DistTensor randint(int64_t lo, int64_t hi, const Shape&, const Mesh&,
                   const Placements& = {}, DType = DType::kI64, Generator = {});

// x with each element dropped with probability p and the others scaled by
// 1/(1-p). The mask is drawn by global index; the gradient draws it again.
DistTensor dropout(const DistTensor& x, double p, Generator);

// For all_ops().
std::vector<const Op*> random_ops();

}  // namespace dtensor
