// Sorting, for portable kernels:
//
//   void sort_by_key(Stream, int64_t n, int bits, const uint64_t* keys,
//                    const int64_t* values, uint64_t* sorted_keys,
//                    int64_t* sorted_values);
//
// sorts n pairs by their keys, which must be below 2^bits. The sort is stable.
// The results must not share memory with the operands.
#pragma once
#include <cstdint>

#include "dtensor/device/portable/executor.h"

#ifdef __CUDACC__
#include "dtensor/device/portable/cuda_sort.cuh"  // IWYU pragma: export
#else
#include <algorithm>
#include <cstddef>
#include <vector>

namespace dtensor::portable {
inline namespace DT_PORTABLE {

inline void sort_by_key(Stream, int64_t n, int, const uint64_t* keys,
                        const int64_t* values, uint64_t* sorted_keys,
                        int64_t* sorted_values) {
  std::vector<int64_t> order(static_cast<size_t>(std::max<int64_t>(n, 0)));
  for (int64_t i = 0; i < n; ++i) order[static_cast<size_t>(i)] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return keys[a] < keys[b]; });
  for (int64_t i = 0; i < n; ++i) {
    sorted_keys[i] = keys[order[static_cast<size_t>(i)]];
    sorted_values[i] = values[order[static_cast<size_t>(i)]];
  }
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::portable
#endif
