// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/cpu/cpu_kernels.h"

namespace dtensor {

const Kernels& cpu_kernels() {
  static const kernels::CpuKernels kernels;
  return kernels;
}

}  // namespace dtensor
