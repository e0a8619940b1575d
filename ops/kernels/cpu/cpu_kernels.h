// The CPU's kernels, which the files of this folder define.
#pragma once
#include "dtensor/ops/kernels/kernels.h"

namespace dtensor::kernels {

class CpuKernels final : public Kernels {
 public:
  DT_KERNELS(DT_OVERRIDE)
};

}  // namespace dtensor::kernels
