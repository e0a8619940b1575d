// The portable kernels as CUDA's executor runs them, on the emulation.
#include <stdexcept>

#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "tests/ops/kernels_testing.h"

namespace dtensor {

namespace cuda {

cudaStream_t enter(Stream s) { return s.handle; }
void check(cudaError_t e, const char* what) {
  if (e != cudaSuccess) throw std::runtime_error(what);
}
void allow_shared_memory(const void*, int64_t) {}

}  // namespace cuda

namespace kernels {

const Kernels& under_test() {
  static const PortableKernels kernels;
  return kernels;
}

}  // namespace kernels
}  // namespace dtensor
