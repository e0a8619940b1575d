// SPDX-License-Identifier: Apache-2.0
// What cuda_kernels.cc is without the libraries of products and attention, that
// are no part of the emulation.
#include "dtensor/ops/kernels/cuda/cuda_kernels.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"

namespace dtensor {

const Kernels& cuda_kernels() {
  static const kernels::PortableKernels kernels;
  return kernels;
}

}  // namespace dtensor
