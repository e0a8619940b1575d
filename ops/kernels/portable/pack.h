// SPDX-License-Identifier: Apache-2.0
// Packs of elements that one instruction loads or stores, which is fastest on
// GPUs.
#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "dtensor/device/values.h"

namespace dtensor::portable {

// W elements that are loaded and stored together.
template <class T, int W>
struct alignas(sizeof(T) * W) Pack {
  T v[W];
};

// How many elements of the widest of these types 16 bytes hold.
template <class... T>
inline constexpr int kPack = 16 / static_cast<int>(std::max({sizeof(T)...}));

template <class T>
DT_HD inline bool aligned(const T* p, int pack) {
  return reinterpret_cast<uintptr_t>(p) % (sizeof(T) * pack) == 0;
}
template <int W, class T>
DT_HD inline Pack<T, W> load(const T* p) {
  return *reinterpret_cast<const Pack<T, W>*>(p);
}
template <int W, class T>
DT_HD inline void store(T* p, const Pack<T, W>& pack) {
  *reinterpret_cast<Pack<T, W>*>(p) = pack;
}

// Converts n <= kMost elements that lie `step` apart to a contiguous array of
// T. of() returns p itself if p already is such an array.
template <class T>
struct Piece {
  static constexpr int64_t kMost = 512;
  alignas(64) T v[kMost];
  Piece() {}  // leaves v uninitialized
  template <class S>
  const T* of(const S* p, int64_t step, int64_t n) {
    if constexpr (std::is_same_v<S, T>)
      if (step == 1) return p;
    if (step == 0)
      std::fill_n(v, n, static_cast<T>(*p));
    else
      for (int64_t i = 0; i < n; ++i) v[i] = static_cast<T>(p[i * step]);
    return v;
  }
};

}  // namespace dtensor::portable
