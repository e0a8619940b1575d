// Sorting, for portable kernels.
#pragma once
#include <cstddef>
#include <cstdint>

#include "dtensor/runtime/device/portable/executor.h"

#ifdef __CUDACC__
#include <cub/device/device_radix_sort.cuh>
#else
#include <algorithm>
#include <vector>
#endif

namespace dtensor::portable {
inline namespace DT_PORTABLE {

// The n pairs by their keys, which are below 2^bits; those of equal keys stay
// in order. The results are other memory than the operands.
inline void sort_by_key(Stream s, int64_t n, int bits, const uint64_t* keys,
                        const int64_t* values, uint64_t* sorted_keys,
                        int64_t* sorted_values) {
  if (n <= 0) return;
#ifdef __CUDACC__
  const auto sort = [&](void* temporary, size_t& bytes) {
    cuda::check(cub::DeviceRadixSort::SortPairs(
                    temporary, bytes, keys, sorted_keys, values, sorted_values,
                    n, 0, bits, cuda::enter(s)),
                "sort");
  };
  size_t bytes = 0;
  sort(nullptr, bytes);  // says what it needs
  Scratch temporary(s, static_cast<int64_t>(bytes));
  sort(temporary.as<char>(), bytes);
#else
  (void)s, (void)bits;
  std::vector<int64_t> order(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) order[static_cast<size_t>(i)] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return keys[a] < keys[b]; });
  for (int64_t i = 0; i < n; ++i) {
    sorted_keys[i] = keys[order[static_cast<size_t>(i)]];
    sorted_values[i] = values[order[static_cast<size_t>(i)]];
  }
#endif
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::portable
