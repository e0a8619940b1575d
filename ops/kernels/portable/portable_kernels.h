// Every kernel, written once: what the files of this folder define. nvcc makes
// CUDA's of them; g++ makes kernels of the host's memory, for tests.
#pragma once
#include "dtensor/device/portable/executor.h"
#include "dtensor/ops/kernels/kernels.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {

class PortableKernels : public Kernels {
 public:
#include "dtensor/ops/kernels/overrides.inc"
};

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels

namespace dtensor {

const Kernels& portable_kernels();  // of the host's memory

}  // namespace dtensor
