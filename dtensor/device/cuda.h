// SPDX-License-Identifier: Apache-2.0
// The machine's GPUs. All CUDA code is in libdtensor_cuda.so, which is loaded
// by the first call of one of these functions, from the first of these places
// that has the file:
//   $DTENSOR_CUDA_LIBRARY, a file; if it is set, no other place is tried
//   the folder of the program
//   PROGRAM.runfiles/dtensor/ops/cuda_plugin, where Bazel puts it
//   ../lib, relative to the folder of the program
//   the system's library path
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "dtensor/device/cuda_options.h"
#include "dtensor/device/device.h"

namespace dtensor {

class NcclLibrary;

// The number of GPUs, at least 1. If there are none, throws an Error that says
// why.
int cuda_devices();

// The device cuda:INDEX, which is never destroyed. Throws Error if it does not
// exist.
Device& cuda(int index);

// Sets how all GPUs compute from now on. Throws Error if there are none.
void cuda_set_options(const CudaOptions&);

// Returns how many calls so far were meant for cuBLASLt or cuDNN, but found no
// kernel there, so that a slower kernel did the work. The keys are kinds of
// calls, such as "bf16 product with bgrad" (BGRAD is an epilogue of cuBLASLt).
// Throws Error if there are no GPUs.
std::map<std::string, int64_t> cuda_declined();

// NCCL (dtensor/comm/nccl/link.h), which connects the GPUs. Throws Error if
// there are no GPUs.
NcclLibrary& cuda_nccl();

}  // namespace dtensor
