// The kernels of CUDA devices.
#pragma once
#include "dtensor/ops/kernels/kernels.h"

namespace dtensor {

// Defined in libdtensor_cuda.so.
const Kernels& cuda_kernels();

}  // namespace dtensor
