// Attention through cuDNN's graph API.
#pragma once
#include <cstdint>
#include <string>

#include "dtensor/ops/kernels/attention.h"

namespace dtensor::kernels::cuda {

// As in AttentionKernels, whether cuDNN computes it; if not, nothing was given
// to the stream: another kernel has to. The same bits every time.
bool cudnn_attention(Stream, DType, const Attention&, void* out,
                     const int64_t out_strides[4], void* lse);
bool cudnn_attention_backward(Stream, DType, const Attention&,
                              const AttentionGrad&);

// Calls so far for which cuDNN had no kernel on this GPU, of those that
// attention_calls.h meant for it.
int64_t cudnn_declined();

// "cuDNN 9.19.0, cudnn-frontend 1.32.0", or why not.
std::string cudnn_attention_library();

}  // namespace dtensor::kernels::cuda
