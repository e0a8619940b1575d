// SPDX-License-Identifier: Apache-2.0
// See cuda_runtime.h.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace cub {

struct DeviceRadixSort {
  // Without temporary memory, returns in `bytes` how much it takes.
  template <class Key, class Value>
  static cudaError_t SortPairs(void* temporary, size_t& bytes, const Key* keys,
                               Key* sorted_keys, const Value* values,
                               Value* sorted_values, int64_t n, int begin,
                               int end, cudaStream_t stream) {
    const size_t needed =
        static_cast<size_t>(n) * (sizeof(Key) + sizeof(Value));
    if (!temporary) {
      bytes = needed;
      return cudaSuccess;
    }
    if (bytes < needed) return cudaErrorInvalidValue;
    return emulation::launch(stream, [=] {
      const Key mask =
          end - begin < 64 ? (Key{1} << (end - begin)) - 1 : ~Key{};
      const auto key = [&](size_t i) { return keys[i] >> begin & mask; };
      std::vector<size_t> order(static_cast<size_t>(n));
      std::iota(order.begin(), order.end(), size_t{0});
      std::stable_sort(order.begin(), order.end(),
                       [&](size_t a, size_t b) { return key(a) < key(b); });
      // The real one writes intermediate results there.
      std::fill_n(static_cast<char*>(temporary), needed, '\xff');
      for (size_t i = 0; i < order.size(); ++i) {
        sorted_keys[i] = keys[order[i]];
        sorted_values[i] = values[order[i]];
      }
    });
  }
};

}  // namespace cub
