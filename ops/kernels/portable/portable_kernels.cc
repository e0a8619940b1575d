#include "dtensor/ops/kernels/portable/portable_kernels.h"

namespace dtensor {

const Kernels& portable_kernels() {
  static const kernels::PortableKernels kernels;
  return kernels;
}

}  // namespace dtensor
