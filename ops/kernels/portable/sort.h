// SPDX-License-Identifier: Apache-2.0
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

#include "dtensor/ops/kernels/portable/executor.h"

#ifdef __CUDACC__
#include "dtensor/ops/kernels/portable/cuda_sort.cuh"  // IWYU pragma: export
#else
namespace dtensor::portable {
inline namespace DT_PORTABLE {

// Not defined: on the host, no kernel calls it. TopK sorts each row by itself.
void sort_by_key(Stream, int64_t n, int bits, const uint64_t* keys,
                 const int64_t* values, uint64_t* sorted_keys,
                 int64_t* sorted_values);

}  // namespace DT_PORTABLE
}  // namespace dtensor::portable
#endif
