// What cuda_kernels.cc is without the libraries of products and attention, that
// are no part of the emulation.
#include "dtensor/ops/kernels/cuda/cuda_kernels.h"
#include "dtensor/ops/kernels/cuda/gemm.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"

namespace dtensor {

const Kernels& cuda_kernels() {
  static const kernels::PortableKernels kernels;
  return kernels;
}

// They round nothing, whatever they may.
void kernels::cuda::allow_tf32(bool) {}
// And have nothing to choose from.
void kernels::cuda::tune_gemm(bool) {}

}  // namespace dtensor
