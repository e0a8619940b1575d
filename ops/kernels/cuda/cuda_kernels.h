// The kernels of CUDA devices.
#pragma once
#include <atomic>

#include "dtensor/device/cuda_options.h"
#include "dtensor/ops/kernels/kernels.h"

namespace dtensor {

// Defined in libdtensor_cuda.so.
const Kernels& cuda_kernels();

namespace kernels::cuda {
// Those of this library; see cuda_set_options(). Any thread may set them.
inline std::atomic<CudaOptions> options;
}  // namespace kernels::cuda

}  // namespace dtensor
