// Several elements moved at once, as GPUs do it best.
#pragma once
#include <algorithm>
#include <cstdint>

#include "dtensor/device/portable/values.h"

namespace dtensor::portable {

// W elements that are loaded and stored together.
template <class T, int W>
struct alignas(sizeof(T) * W) Pack {
  T v[W];
};

// The number of elements of the widest of these types in 16 bytes.
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

}  // namespace dtensor::portable
