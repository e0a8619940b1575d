// Tensors from nothing, and random numbers. The values depend on the global
// index, the seed and the stream alone: equal on every mesh and layout.
#pragma once
#include <cstdint>
#include <map>
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
  bool global = false;  // the run's own, which the others do not count for
  // Of the device: {seed, stream}, read when the numbers are drawn (for work
  // that is given once and runs often), instead of the two above.
  const uint64_t* at = nullptr;
};
// The run's own generator, from which every call takes a new stream, as in
// torch: what it draws follows from manual_seed() and from how often it was
// asked, alike on all ranks that ask alike. Meshes over all ranks of the run
// share it; one over some of them has its own.
inline constexpr Generator kGlobalGenerator{0, 0, true};
// Where the run's own generators begin, 0 at first; they begin again. Every
// rank calls it.
void manual_seed(uint64_t seed);
// Where they are on this rank: the seed, and how often each set of ranks (0:
// all of the run, else a hash of them) has drawn. What is drawn after a
// set_random_state() is what was drawn after that random_state(), if all ranks
// do it.
struct RandomState {
  uint64_t seed = 0;
  std::map<uint64_t, uint64_t> times;
  bool operator==(const RandomState&) const = default;
};
RandomState random_state();
void set_random_state(RandomState);

// Normal with that mean and standard deviation; uniform in [lo, hi).
DistTensor randn(const Shape&, const Mesh&, const Placements& = {},
                 DType = DType::kF32, Generator = kGlobalGenerator,
                 double mean = 0, double std = 1);
DistTensor uniform(const Shape&, const Mesh&, const Placements& = {},
                   DType = DType::kF32, Generator = kGlobalGenerator,
                   double lo = 0, double hi = 1);
// Integers in [lo, hi), i32 or i64.
DistTensor randint(int64_t lo, int64_t hi, const Shape&, const Mesh&,
                   const Placements& = {}, DType = DType::kI64,
                   Generator = kGlobalGenerator);

// x with each element dropped with probability p and the others scaled by
// 1/(1-p). The mask is drawn by global index; the gradient draws it again.
DistTensor dropout(const DistTensor& x, double p, Generator = kGlobalGenerator);

// For all_ops().
std::vector<const Op*> random_ops();

}  // namespace dtensor
