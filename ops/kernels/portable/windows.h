// SPDX-License-Identifier: Apache-2.0
// Positions in windows that slide over three dimensions of space. Private to
// ops/kernels. `Args` is Convolution or Pool.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "dtensor/device/values.h"

namespace dtensor::portable {

using Space = std::array<int64_t, 3>;

DT_HD inline int64_t volume(const Space& s) { return s[0] * s[1] * s[2]; }

// The position of element `e` in row-major order, and the reverse.
DT_HD inline Space place(const Space& s, int64_t e) {
  return {e / (s[1] * s[2]), e / s[2] % s[1], e % s[2]};
}
DT_HD inline int64_t index(const Space& s, const Space& at) {
  return (at[0] * s[1] + at[1]) * s[2] + at[2];
}

// Sets i to the place in x that meets place m of y through tap k. Returns false
// if there is none.
template <class Args>
DT_HD bool to_x(const Args& a, const Space& m, const Space& k, Space& i) {
  bool inside = true;
  for (size_t d = 0; d < 3; ++d) {
    i[d] = m[d] * a.stride[d] + k[d] * a.dilation[d] - a.pad[d];
    inside = inside && i[d] >= 0 && i[d] < a.in[d];
  }
  return inside;
}
// Sets m to the place in y that meets place i of x through tap k. Returns false
// if there is none.
template <class Args>
DT_HD bool to_y(const Args& a, const Space& i, const Space& k, Space& m) {
  bool inside = true;
  for (size_t d = 0; d < 3; ++d) {
    const int64_t from = i[d] + a.pad[d] - k[d] * a.dilation[d];
    m[d] = from / a.stride[d];
    inside = inside && from >= 0 && from % a.stride[d] == 0 && m[d] < a.out[d];
  }
  return inside;
}

}  // namespace dtensor::portable
