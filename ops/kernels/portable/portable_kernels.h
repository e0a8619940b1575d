// SPDX-License-Identifier: Apache-2.0
// All kernels of the device for which the compiler compiles. The files of this
// folder are written once: nvcc compiles them for CUDA, and g++ for the CPU,
// which has its own files for some kernels (../cpu).
#pragma once
#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/ops/kernels/portable/executor.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {

class PortableKernels : public Kernels {
 public:
  DT_KERNELS(DT_OVERRIDE)
};

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
