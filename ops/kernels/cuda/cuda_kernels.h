// SPDX-License-Identifier: Apache-2.0
// The kernels of CUDA devices.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "dtensor/device/cuda_options.h"
#include "dtensor/ops/kernels/kernels.h"

namespace dtensor {

// Defined in libdtensor_cuda.so.
const Kernels& cuda_kernels();

namespace kernels::cuda {
// How this library computes; see cuda_set_options(). Any thread may set it.
inline std::atomic<CudaOptions> options;

// The counts that cuda_declined() returns. Any thread may call both functions.
class Declined {
 public:
  void count(const std::string& what) {
    std::lock_guard lock(mutex_);
    ++counts_[what];
  }
  std::map<std::string, int64_t> counts() {
    std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int64_t> counts_;
};
inline Declined declined;
}  // namespace kernels::cuda

}  // namespace dtensor
