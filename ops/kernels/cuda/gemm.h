// SPDX-License-Identifier: Apache-2.0
// Products of matrices through cuBLASLt.
#pragma once
#include "dtensor/ops/kernels/gemm.h"

namespace dtensor::kernels::cuda {

// Returns whether cuBLASLt does the work, including the epilogue. If not,
// nothing was submitted to the stream, and the caller must use another kernel,
// or separate ones for product and epilogue.
//
// It uses the first algorithm that cuBLASLt proposes. This is the same in every
// run and process, and on every GPU of a kind, so equal calls give equal bits,
// also for copies of a value on several ranks.
//
// With CudaOptions::tune_gemm, the first call of a kind times the algorithms
// that cuBLASLt proposes, which waits for the stream. The fastest one is kept
// in the user's folder (GemmChoices) for a kind of GPU and a version of
// cuBLASLt: all processes that share the folder, and all later runs, use it, so
// that equal calls give equal bits. While a stream is being captured, nothing
// is timed. If no choice was kept before, this process uses the first proposal
// from then on.
bool cublaslt_gemm(Stream, const Gemm&);

}  // namespace dtensor::kernels::cuda
