// SPDX-License-Identifier: Apache-2.0
// New tensors: constants, ranges, masks and random numbers. The value of an
// element depends only on its global index and the arguments, and for random
// numbers also on the seed and the stream, so it is the same on every mesh and
// in every layout. Every rank of the mesh calls the functions that return a
// DistTensor.
#pragma once
#include <algorithm>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <map>
#include <memory>
#include <type_traits>
#include <utility>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// Tensors of x's shape and dtype, split as x is. They are replicated over mesh
// axes over which x is partial.
DistTensor zeros_like(const DistTensor& x);
DistTensor ones_like(const DistTensor& x);
DistTensor full_like(const DistTensor& x, double value);

// start, start + step, ... up to end, exclusive: ceil((end - start) / step)
// numbers. Throws Error if step is 0 or has the wrong sign.
DistTensor arange(double start, double end, double step, const Mesh&,
                  const Placements& = {}, DType = DType::kF32);
// n numbers from start to end, both included, at equal distances; `start` alone
// if n is 1.
DistTensor linspace(double start, double end, int64_t n, const Mesh&,
                    const Placements& = {}, DType = DType::kF32);
// 1 on the main diagonal, 0 elsewhere.
DistTensor eye(int64_t rows, int64_t columns, const Mesh&, DType = DType::kF32);

// Copies of x [..., m, n] with zeros above (tril) or below (triu) the diagonal
// that lies `diagonal` columns to the right of the main one.
DistTensor tril(const DistTensor& x, int64_t diagonal = 0);
DistTensor triu(const DistTensor& x, int64_t diagonal = 0);
// The sum of the diagonal of a matrix.
DistTensor trace(const DistTensor& x);
// Returns x with `value` in the places where the mask is true. x and the mask
// (bool) broadcast to one shape; a tensor `value` must have no dimensions.
DistTensor masked_fill(const DistTensor& x, const DistTensor& mask,
                       const DistTensor& value);
DistTensor masked_fill(const DistTensor& x, const DistTensor& mask,
                       double value);
// Returns [..., classes] in i64 with 1 at each index and 0 elsewhere, for
// indices [...] (i32 or i64).
DistTensor one_hot(const DistTensor& indices, int64_t classes);

// ---- Constants and random numbers ----

DistTensor zeros(const Shape&, const Mesh&, const Placements& = {},
                 DType = DType::kF32);
DistTensor ones(const Shape&, const Mesh&, const Placements& = {},
                DType = DType::kF32);
DistTensor full(const Shape&, double value, const Mesh&, const Placements& = {},
                DType = DType::kF32);
// Memory without values.
DistTensor empty(const Shape&, const Mesh&, const Placements& = {},
                 DType = DType::kF32);
// A vector of these values, which all ranks give alike: i64 for integers, bool
// for bools, else f32. For a matrix, write tensor({1, 2, 3, 4}, mesh).view({2,
// 2}).
template <class T>
requires std::is_arithmetic_v<T> DistTensor
tensor(std::initializer_list<T> values, const Mesh& mesh,
       const Placements& placements = {}) {
  using Integer = std::conditional_t<std::is_same_v<T, bool>, bool, int64_t>;
  using Stored = std::conditional_t<std::is_integral_v<T>, Integer, float>;
  const auto stored = std::make_unique<Stored[]>(values.size());
  std::transform(values.begin(), values.end(), stored.get(),
                 [](T value) { return static_cast<Stored>(value); });
  return DistTensor::from_global(
      Tensor::from({std::ssize(values)}, stored.get()), mesh, placements);
}
// The numbers 0, 1, ..., n-1.
DistTensor arange(int64_t n, const Mesh&, const Placements& = {},
                  DType = DType::kI64);

// The source of random numbers: Philox4x32-10 with the key (seed, stream).
struct Generator {
  uint64_t seed = 0;
  uint64_t stream = 0;  // one per use, such as the hash of a parameter's name
  bool global = false;  // the run's own generator; ignores the members above
  // If not null, the address of a pair {seed, stream} in device memory that is
  // used instead of `seed` and `stream`. It is read when numbers are drawn, so
  // that a captured graph draws other numbers at each replay.
  const uint64_t* at = nullptr;
};
// The run's own generator. Each call takes a new stream from it, as in torch.
// The numbers depend on manual_seed() and on how many calls came before, so
// they agree on ranks that make the same calls. Meshes over all ranks of the
// run share one generator; each smaller set of ranks has its own.
inline constexpr Generator kGlobalGenerator{0, 0, true};
// Restarts the run's own generators with this seed (0 before the first call).
// Every rank calls it.
void manual_seed(uint64_t seed);
// The state of the run's own generators on this rank. If each rank passes its
// state to set_random_state(), the calls from then on draw the same numbers as
// the calls after random_state().
struct RandomState {
  uint64_t seed = 0;
  // The number of draws by each set of ranks. The key is 0 for all ranks of the
  // run, else a hash of the set.
  std::map<uint64_t, uint64_t> times;
  bool operator==(const RandomState&) const = default;
};
RandomState random_state();
void set_random_state(RandomState);
// Draws from this state until the scope ends, which restores the state before.
class RandomScope {
 public:
  explicit RandomScope(const RandomState& state) : old_(random_state()) {
    set_random_state(state);
  }
  ~RandomScope() { set_random_state(std::move(old_)); }
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

 private:
  RandomState old_;
};

// randn() draws from the normal distribution with this mean and standard
// deviation, and uniform() from [lo, hi). Both throw Error unless the dtype is
// a float type.
DistTensor randn(const Shape&, const Mesh&, const Placements& = {},
                 DType = DType::kF32, Generator = kGlobalGenerator,
                 double mean = 0, double std = 1);
DistTensor uniform(const Shape&, const Mesh&, const Placements& = {},
                   DType = DType::kF32, Generator = kGlobalGenerator,
                   double lo = 0, double hi = 1);
// Draws integers from [lo, hi), as i32 or i64. Throws Error for other types.
DistTensor randint(int64_t lo, int64_t hi, const Shape&, const Mesh&,
                   const Placements& = {}, DType = DType::kI64,
                   Generator = kGlobalGenerator);

// Sets each element of x to 0 with probability p, and multiplies the others by
// 1/(1-p). The mask depends on the global index; the gradient draws it again.
DistTensor dropout(const DistTensor& x, double p, Generator = kGlobalGenerator);
// x itself, unless `training`; nn::Dropout keeps that flag.
// (A template, so that {} is still a Generator.)
template <std::same_as<bool> B>
DistTensor dropout(const DistTensor& x, double p, B training) {
  return training ? dropout(x, p) : x;
}

}  // namespace dtensor
