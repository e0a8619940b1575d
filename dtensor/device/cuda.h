// The machine's GPUs. What is CUDA is in libdtensor_cuda.so, which is loaded
// when the first of these functions is called: looked for in
//   $DTENSOR_CUDA_LIBRARY, a file, instead of all that follow
//   the folder of the program
//   PROGRAM.runfiles/dtensor/ops/cuda_plugin, where Bazel puts it
//   ../lib, from the folder of the program
//   where the system looks for libraries
#pragma once
#include "dtensor/comm/nccl/link.h"
#include "dtensor/device/device.h"

namespace dtensor {

// 1 or more. Throws the Error that says why there are none.
int cuda_devices();

// cuda:INDEX. Throws Error when it is not there. They live for ever.
Device& cuda(int index);

// Whether products of f32 on all of them may round their operands to TF32, of
// 10 bits; at first they may not. Throws Error when there are none.
void cuda_allow_tf32(bool);

// Whether the first product of each kind times cuBLASLt's algorithms, and those
// like it take the fastest; at first they take cuBLASLt's first proposal, which
// gives the same bits in every run and on every GPU of a kind. Throws Error
// when there are none.
void cuda_tune_gemm(bool);

// What connects them. Throws Error when there are none.
NcclLibrary& cuda_nccl();

}  // namespace dtensor
