// SPDX-License-Identifier: Apache-2.0
// The machine's GPUs. All CUDA code is in libdtensor_cuda.so, which the first
// call of one of these functions loads, from the first of these places that has
// it:
//   $DTENSOR_CUDA_LIBRARY, a file; if it is set, no other place is tried
//   the folder of the program
//   PROGRAM.runfiles/dtensor/ops/cuda_plugin, where Bazel puts it
//   ../lib, relative to the folder of the program
//   the system's library path
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "dtensor/comm/nccl/link.h"
#include "dtensor/device/cuda_options.h"
#include "dtensor/device/device.h"

namespace dtensor {

// The number of GPUs, at least 1. Throws the Error that says why there are
// none.
int cuda_devices();

// The device cuda:INDEX, which is never destroyed. Throws Error if it does not
// exist.
Device& cuda(int index);

// Sets how all GPUs compute from now on. Throws Error if there are none.
void cuda_set_options(const CudaOptions&);

// How often, so far, cuBLASLt and cuDNN had no kernel for a call that was meant
// for them, so that a slower one did the work: by kind, such as "bf16 product
// with bgrad", cuBLASLt's name of the epilogue. Throws Error if there are no
// GPUs.
std::map<std::string, int64_t> cuda_declined();

// NCCL, which connects the GPUs. Throws Error if there are no GPUs.
NcclLibrary& cuda_nccl();

}  // namespace dtensor
