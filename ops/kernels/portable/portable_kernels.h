// All kernels, written once in the files of this folder. nvcc compiles them for
// CUDA; g++ compiles them for host memory, for tests.
#pragma once
#include "dtensor/device/portable/executor.h"
#include "dtensor/ops/kernels/kernels.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {

class PortableKernels : public Kernels {
 public:
  DT_KERNELS(DT_OVERRIDE)
};

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels

namespace dtensor {

const Kernels& portable_kernels();  // for host memory

}  // namespace dtensor
