// The portable kernels as CUDA's executor runs them, on the emulation.
#include <stdexcept>

#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "tests/ops/kernels_testing.h"

namespace dtensor {

namespace cuda {

cudaStream_t enter(Stream s) { return s.handle; }
void check(cudaError_t e, const char* what) {
  if (e != cudaSuccess) throw std::runtime_error(what);
}
void allow_shared_memory(const void*, int64_t) {}
void* allocate_scratch(cudaStream_t s, int64_t bytes) {
  void* data = nullptr;
  check(cudaMallocAsync(&data, static_cast<size_t>(bytes), s), "scratch");
  return data;
}

}  // namespace cuda

namespace kernels {

// Not here: see tests/ops/BUILD.
void PortableKernels::unary(Stream, int, int, DType t, const double*,
                            const Pointwise&) const {
  no_kernel("emulated unary", t);
}
void PortableKernels::binary(Stream, int, fn::By, DType t, const double*,
                             const Pointwise&) const {
  no_kernel("emulated binary", t);
}
void PortableKernels::where(Stream, DType t, const Pointwise&) const {
  no_kernel("emulated where", t);
}

const Kernels& under_test() {
  static const PortableKernels kernels;
  return kernels;
}

}  // namespace kernels
}  // namespace dtensor
