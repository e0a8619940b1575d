// SPDX-License-Identifier: Apache-2.0
// Attention through cuDNN's graph API.
#pragma once
#include <cstdint>
#include <string>

#include "dtensor/ops/kernels/attention.h"

namespace dtensor::kernels::cuda {

// Return whether cuDNN does the work. If not, nothing was submitted to the
// stream, and the caller must use another kernel. Results are bit-identical in
// every run; those of the gradient only with CudaOptions::deterministic.
bool cudnn_attention(Stream, const AttentionForward&);
bool cudnn_attention(Stream, const AttentionBackward&);

// "cuDNN 9.19.0, cudnn-frontend 1.32.0", or the reason why it is not available.
std::string cudnn_attention_library();

}  // namespace dtensor::kernels::cuda
