// Products of matrices through cuBLASLt.
#pragma once
#include "dtensor/ops/kernels/gemm.h"

namespace dtensor::kernels::cuda {

// Returns whether cuBLASLt does the work, including the
// epilogue. If not, nothing was submitted to the stream, and the caller must
// use another kernel, or separate ones for product and epilogue.
//
// It uses the first algorithm that cuBLASLt proposes. This is the same in every
// run and process, and on every GPU of a kind, so equal calls give equal bits,
// also for copies of a value on several ranks. tune_gemm() changes this.
bool cublaslt_gemm(Stream, const Gemm&);

// The number of calls so far for which cuBLASLt had no algorithm, although
// gemm_calls.h selected it.
int64_t cublaslt_declined();

// Whether products of f32 may round their operands to TF32 (10 bits of
// mantissa). False by default.
void allow_tf32(bool);

// Whether the first call of a kind times the algorithms that cuBLASLt proposes,
// which waits for the stream. The fastest one is kept for all streams of this
// process and device. Another device or run may choose differently, and give
// other bits. While a stream is being captured nothing is timed, and the first
// proposal is kept. False by default.
void tune_gemm(bool);

}  // namespace dtensor::kernels::cuda
