// For nvcc, as all that sees its PortableKernels.
#include "dtensor/ops/kernels/cuda/cuda_kernels.h"

#include "dtensor/ops/kernels/cuda/gemm.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"

namespace dtensor {
namespace {

// The portable ones, and libraries for what they are faster at.
class CudaKernels final : public kernels::PortableKernels {
 public:
  void gemm(Stream s, DType in, DType out,
            const kernels::Gemm& g) const override {
    if (!kernels::cuda::cublaslt_gemm(s, in, out, g))
      PortableKernels::gemm(s, in, out, g);
  }
};

}  // namespace

const Kernels& cuda_kernels() {
  static const CudaKernels kernels;
  return kernels;
}

}  // namespace dtensor
