// SPDX-License-Identifier: Apache-2.0
// See sort.h, which includes this for nvcc.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cub/device/device_radix_sort.cuh>

#include "dtensor/ops/cuda_plugin/launch.cuh"
#include "dtensor/ops/kernels/portable/cuda_executor.cuh"

namespace dtensor::portable {
inline namespace on_cuda {

inline void sort_by_key(Stream s, int64_t n, int bits, const uint64_t* keys,
                        const int64_t* values, uint64_t* sorted_keys,
                        int64_t* sorted_values) {
  if (n <= 0) return;
  const auto sort = [&](void* temporary, size_t& bytes) {
    cuda::check(cub::DeviceRadixSort::SortPairs(
                    temporary, bytes, keys, sorted_keys, values, sorted_values,
                    n, 0, bits, cuda::enter(s)),
                "sort");
  };
  size_t bytes = 0;
  sort(nullptr, bytes);  // asks for the size of the temporary memory
  Scratch temporary(s, static_cast<int64_t>(bytes));
  sort(temporary.as<char>(), bytes);
}

}  // namespace on_cuda
}  // namespace dtensor::portable
