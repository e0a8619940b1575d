// SPDX-License-Identifier: Apache-2.0
// One dimension at another resolution, for interpolate() and adaptive pools.
// Private to ops.
#pragma once
#include <array>
#include <cstdint>

#include "dtensor/dist_tensor.h"
#include "dtensor/placement/split.h"

namespace dtensor {

// The elements of x that make element m of y, with p = m * scale + offset. An
// index beyond an end of x stands for the last element there.
enum class Taps : uint8_t {
  kNearest,  // floor(p)
  kLinear,   // the two around max(p, 0)
  kCubic,    // the four around p
  kArea,     // the mean of adaptive_window(m)
  // One element: the elements of each of `windows` adaptive windows follow each
  // other, with copies of the last one, so that all windows have one size.
  kWindows
};
struct Resampling {
  Taps taps = Taps::kLinear;
  int64_t size = 0;  // of y
  double scale = 1, offset = 0;
  int64_t windows = 0;  // divides `size`
  // For kLinear and kCubic: if `scale` is above 1, an element of y is made of
  // `scale` times as many elements.
  bool antialias = false;
};

// The positions of x that window m of an adaptive pool has, if x has `in`
// positions and the result `out`.
inline Interval adaptive_window(int64_t m, int64_t in, int64_t out) {
  return {m * in / out, ((m + 1) * in + out - 1) / out};
}

// The weight of an element at distance d < 1 (near) or 1 <= d < 2 (far) in
// Keys' cubic convolution (IEEE Transactions on Acoustics, Speech and Signal
// Processing 29, 1981) with parameter k. T is a number or a DistTensor.
template <class T>
T cubic_near(const T& d, double k) {
  return ((k + 2) * d - (k + 3)) * d * d + 1;
}
template <class T>
T cubic_far(const T& d, double k) {
  return ((k * d - 5 * k) * d + 8 * k) * d - 4 * k;
}
// The weights of the four elements around a position that is t behind the
// second one, with torch's parameter.
template <class T>
std::array<T, 4> cubic_weights(const T& t) {
  constexpr double k = -0.75;
  return {cubic_far<T>(t + 1, k), cubic_near(t, k), cubic_near<T>(1 - t, k),
          cubic_far<T>(2 - t, k)};
}

// Computes y from x along a dimension, at a cost of the number of taps for each
// element of y. If the dimension is split, each rank fetches the elements that
// its own part of y needs, and so does the gradient. Throws Error unless x is a
// float type. REQUIRES: the dimension has elements, and size >= 1.
DistTensor resample(const DistTensor& x, int dim, const Resampling&);

}  // namespace dtensor
