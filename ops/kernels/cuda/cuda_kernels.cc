// SPDX-License-Identifier: Apache-2.0
// nvcc compiles this file, because its PortableKernels are those of CUDA.
#include "dtensor/ops/kernels/cuda/cuda_kernels.h"

#include "dtensor/ops/kernels/cuda/attention.h"
#include "dtensor/ops/kernels/cuda/gemm.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"

namespace dtensor {
namespace {

// The portable kernels, or those of libraries where these are faster.
class CudaKernels final : public kernels::PortableKernels {
 public:
  using PortableKernels::run;
  void run(Stream s, const kernels::Gemm& g) const override {
    if (kernels::cuda::cublaslt_gemm(s, g)) return;
    if (g.epilogue.kind == kernels::Epilogue::kNone)
      return PortableKernels::run(s, g);
    kernels::Gemm product = g;
    product.epilogue = {};
    run(s, product);
    run(s, kernels::FinishGemm{g});
  }
  void run(Stream s, const kernels::AttentionForward& a) const override {
    if (!kernels::cuda::cudnn_attention(s, a)) PortableKernels::run(s, a);
  }
  void run(Stream s, const kernels::AttentionBackward& a) const override {
    if (!kernels::cuda::cudnn_attention(s, a)) PortableKernels::run(s, a);
  }
};

}  // namespace

const Kernels& cuda_kernels() {
  static const CudaKernels kernels;
  return kernels;
}

}  // namespace dtensor
