// Products of matrices through cuBLASLt.
#pragma once
#include "dtensor/ops/kernels/gemm.h"

namespace dtensor::kernels::cuda {

// As GemmKernels::gemm, whether cuBLASLt computes it, epilogue and all; if not,
// nothing was given to the stream: another kernel has to, or one for each.
//
// The first call of a kind times the algorithms that cuBLASLt proposes, and
// waits for the stream; the fastest is kept for all streams of this process and
// device, so that equal calls give equal bits. (Another process, which times
// for itself, may keep another one.) While a stream is captured into a graph
// nothing is timed: the first proposal is kept.
bool cublaslt_gemm(Stream, DType in, DType out, const Gemm&);

// Calls so far for which cuBLASLt had no algorithm, of those that gemm_calls.h
// meant for it.
int64_t cublaslt_declined();

// Whether products of f32 may round their operands to TF32, of 10 bits. Off
// unless asked for.
void allow_tf32(bool);

}  // namespace dtensor::kernels::cuda
