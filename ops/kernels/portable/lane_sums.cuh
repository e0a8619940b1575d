// SPDX-License-Identifier: Apache-2.0
// Loads, and sums over lanes, for kernels in which several lanes read one row
// in packs. Only for code that runs on CUDA.
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/portable/executor.h"
#include "dtensor/ops/kernels/portable/pack.h"

namespace dtensor::kernels {
inline namespace on_cuda {

// Returns elements [at, at + W) of a row of n, with zeros beyond its end.
// REQUIRES with kAligned: n and `at` are multiples of W, and the row is aligned
// to a pack. Without kAligned, the elements are loaded one by one.
template <bool kAligned, int W, class T>
__device__ inline portable::Pack<T, W> load_at(const T* row, int64_t at,
                                               int64_t n) {
  portable::Pack<T, W> pack = {};
  if constexpr (kAligned) {
    if (at < n) pack = portable::load<W>(row + at);
  } else {
#pragma unroll
    for (int w = 0; w < W; ++w)
      if (at + w < n) pack.v[w] = row[at + w];
  }
  return pack;
}

// Sums N values over groups of `lanes` neighbouring lanes of a warp: lane i of
// a group gets the sum of value i % N. All lanes of the warp call it. N and
// `lanes` are powers of two, and N <= lanes. In each of the first steps a lane
// passes on half of its values, so that there are about N shuffles in all
// rather than N for each step. The order of the additions depends only on
// `lanes`.
template <int N, class T>
__device__ inline T sum_over_lanes(const T (&x)[N], int lane, int lanes,
                                   int distance = 1) {
  if constexpr (N == 1) {
    T sum = x[0];
    for (; distance < lanes; distance *= 2)
      sum += portable::of_lane(sum, distance);
    return sum;
  } else {
    const bool odd = (lane & distance) != 0;
    T half[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      T keep = x[2 * i], pass = x[2 * i + 1];
      portable::exchange(odd, keep, pass);
      half[i] = keep + portable::of_lane(pass, distance);
    }
    return sum_over_lanes(half, lane, lanes, 2 * distance);
  }
}

}  // namespace on_cuda
}  // namespace dtensor::kernels
