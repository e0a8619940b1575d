#include <cublasLt.h>
#include <cudnn.h>
#include <nccl.h>

#include "dtensor/placement/error.h"
#include "dtensor/placement/shape.h"
#include "dtensor/runtime/device/cuda/launch.h"

namespace dtensor {
namespace cuda {

cudaStream_t enter(Stream s) { return static_cast<cudaStream_t>(s.handle); }

void check(cudaError_t e, const char* what) {
  DT_CHECK(e == cudaSuccess, what, "{}", cudaGetErrorString(e));
}

void allow_fast_memory(const void* kernel, int64_t bytes) {
  check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(bytes)),
      "launch");
}

}  // namespace cuda

}  // namespace dtensor

// The versions of the libraries, together: these are here, and were found.
extern "C" [[gnu::visibility("default")]] size_t dtensor_cuda_plugin() {
  int nccl = 0;
  return cublasLtGetVersion() + cudnnGetVersion() +
         (ncclGetVersion(&nccl) == ncclSuccess ? static_cast<size_t>(nccl) : 0);
}
