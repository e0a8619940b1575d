// Products of matrices through cuBLASLt.
#pragma once
#include "dtensor/ops/kernels/gemm.h"

namespace dtensor::kernels::cuda {

// As GemmKernels::gemm, whether cuBLASLt computes it, epilogue and all; if not,
// nothing was given to the stream: another kernel has to, or one for each.
//
// Of the algorithms that cuBLASLt has, its first proposal: the same in every
// run, process and GPU of a kind, so that equal calls give equal bits, of
// copies of a value on several ranks too. See tune_gemm().
bool cublaslt_gemm(Stream, DType in, DType out, const Gemm&);

// Calls so far for which cuBLASLt had no algorithm, of those that gemm_calls.h
// meant for it.
int64_t cublaslt_declined();

// Whether products of f32 may round their operands to TF32, of 10 bits. Off
// unless asked for.
void allow_tf32(bool);

// Whether the first call of a kind times the algorithms that cuBLASLt proposes,
// waiting for the stream, and the fastest is kept for all streams of this
// process and device. Another device, or run, may keep another one, and give
// other bits. While a stream is captured into a graph nothing is timed: the
// first proposal is kept. Off unless asked for.
void tune_gemm(bool);

}  // namespace dtensor::kernels::cuda
