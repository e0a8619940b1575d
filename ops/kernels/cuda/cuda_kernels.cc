// Compiled by nvcc, like everything that includes its PortableKernels.
#include "dtensor/ops/kernels/cuda/cuda_kernels.h"

#include "dtensor/ops/kernels/cuda/attention.h"
#include "dtensor/ops/kernels/cuda/gemm.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"

namespace dtensor {
namespace {

// The portable kernels, with libraries where those are faster.
class CudaKernels final : public kernels::PortableKernels {
 public:
  void gemm(Stream s, DType in, DType out,
            const kernels::Gemm& g) const override {
    if (kernels::cuda::cublaslt_gemm(s, in, out, g)) return;
    if (g.epilogue.kind == kernels::Epilogue::kNone)
      return PortableKernels::gemm(s, in, out, g);
    kernels::Gemm product = g;
    product.epilogue = {};
    gemm(s, in, out, product);
    finish_gemm(s, out, g);
  }
  void attention(Stream s, DType t, const kernels::Attention& a, void* out,
                 const int64_t out_strides[4], void* lse) const override {
    if (!kernels::cuda::cudnn_attention(s, t, a, out, out_strides, lse))
      PortableKernels::attention(s, t, a, out, out_strides, lse);
  }
  void attention_backward(Stream s, DType t, const kernels::Attention& a,
                          const kernels::AttentionGrad& g) const override {
    if (!kernels::cuda::cudnn_attention_backward(s, t, a, g))
      PortableKernels::attention_backward(s, t, a, g);
  }
};

}  // namespace

const Kernels& cuda_kernels() {
  static const CudaKernels kernels;
  return kernels;
}

}  // namespace dtensor
