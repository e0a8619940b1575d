// SPDX-License-Identifier: Apache-2.0
// nvcc compiles this file, so that DT_PORTABLE means the kernels for CUDA.
#include "dtensor/ops/kernels/cuda/cuda_kernels.h"

#include "dtensor/ops/kernels/cuda/attention.h"
#include "dtensor/ops/kernels/cuda/gemm.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"

namespace dtensor {
namespace kernels {
inline namespace DT_PORTABLE {

// The portable kernels.
void run(Stream, const Gemm&);
void run(Stream, const FinishGemm&);
void run(Stream, const AttentionForward&);
void run(Stream, const AttentionBackward&);

namespace {

// The libraries' kernels for calls that they take, else the portable ones.
void gemm(Stream s, const Gemm& g) {
  if (cuda::cublaslt_gemm(s, g)) return;
  if (g.epilogue.kind == Epilogue::kNone) return run(s, g);
  Gemm product = g;
  product.epilogue = {};
  gemm(s, product);
  run(s, FinishGemm{g});
}
template <class Args>
void attention(Stream s, const Args& a) {
  if (!cuda::cudnn_attention(s, a)) run(s, a);
}

template <class Args, void (*fn)(Stream, const Args&)>
void replace() {
  defined_kernels().set(kernel_name<Args>(), &run_kernel<Args, fn>);
}

}  // namespace
}  // namespace DT_PORTABLE
}  // namespace kernels

const Kernels& cuda_kernels() {
  static const Kernels& all = []() -> const Kernels& {
    using namespace kernels;
    replace<Gemm, gemm>();
    replace<AttentionForward, attention>();
    replace<AttentionBackward, attention>();
    return defined_kernels();
  }();
  return all;
}

}  // namespace dtensor
