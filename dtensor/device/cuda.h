// The machine's GPUs. All CUDA code is in libdtensor_cuda.so, which the first
// call of one of these functions loads, from the first of these places that has
// it:
//   $DTENSOR_CUDA_LIBRARY, a file; if it is set, no other place is tried
//   the folder of the program
//   PROGRAM.runfiles/dtensor/ops/cuda_plugin, where Bazel puts it
//   ../lib, relative to the folder of the program
//   the system's library path
#pragma once
#include "dtensor/comm/nccl/link.h"
#include "dtensor/device/device.h"

namespace dtensor {

// The number of GPUs, at least 1. Throws the Error that says why there are
// none.
int cuda_devices();

// The device cuda:INDEX, which is never destroyed. Throws Error if it does not
// exist.
Device& cuda(int index);

// Whether f32 matrix products on all GPUs may round their operands to TF32 (10
// mantissa bits). By default they may not. Throws Error if there are no GPUs.
void cuda_allow_tf32(bool);

// Whether the first matrix product of each kind measures cuBLASLt's algorithms,
// and later ones use the fastest. By default, products use cuBLASLt's first
// proposal, which gives the same bits in every run and on every GPU of the same
// model. Throws Error if there are no GPUs.
void cuda_tune_gemm(bool);

// NCCL, which connects the GPUs. Throws Error if there are no GPUs.
NcclLibrary& cuda_nccl();

}  // namespace dtensor
